// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: one NVIDIA GPU (Ampere, Ada, Hopper). Weights and the pools of blocks are in its memory;
// a pass is queued on a stream and runs while the host plans the next (Backend::begin, finish). docs/cuda.md.
//
// Numerics. Products take 16-bit inputs and sum in float32; the residual stream is float32; keys and values
// are rounded to 16 bits before anything reads them. The same batch gives the same bits. With `deterministic`
// a token's bits depend only on the model and the tokens before it, as on the CPU backend; this costs some
// speed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/compute/state_type.h"
#include "loci/model/model_spec.h"

namespace loci {

struct CudaBackendOptions {
  std::uint32_t ordinal = 0;  // of the device
  bool deterministic = false;
  std::uint32_t max_batch_tokens = 512;   // rows of a pass, at most; working memory is allocated for as many
  std::uint32_t context_tokens = 0;       // of a sequence, at most; 0: the model's
  std::uint32_t max_spans = 256;          // usual bound for a pass; for more spans, buffers grow
  bool graphs = true;                     // launch decode steps as graphs
  std::optional<StateType> state_type{};  // absent: the 16-bit type of the products, which is the only one
                                          // supported
  std::function<void(const std::string&)> warn{};  // called with what runs slower than it could; may be null
};

// Errors: kUnavailable (no driver, no such device), kInvalidArgument (a shape that no kernel supports, by
// name; an unsupported type of state), kResourceExhausted (the weights do not fit).
Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelSpec& spec, const CudaBackendOptions& options);

}  // namespace loci
