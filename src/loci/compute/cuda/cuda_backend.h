// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: one NVIDIA GPU (Ampere, Ada, Hopper). Weights and the pools of blocks are in its memory;
// a pass is queued on a stream and runs while the host plans the next (Backend::begin, finish). docs/cuda.md.
//
// Numerics. Products take 16-bit inputs and sum in float32; the residual stream is float32; keys and values
// are rounded to 16 bits before anything reads them. The same batch gives the same bits. With `deterministic`
// a token's bits depend on the model and the tokens before it alone, as on the CPU backend, at some speed.
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
  std::uint32_t max_batch_tokens = 512;   // rows of a pass, at most; what it works in is allocated for them
  std::uint32_t context_tokens = 0;       // of a sequence, at most; 0: the model's
  std::uint32_t max_spans = 256;          // of a pass, as a rule; for more, buffers grow
  bool graphs = true;                     // decode steps as graphs
  std::optional<StateType> state_type{};  // absent: the products' own 16-bit type, the only one there is
  std::function<void(const std::string&)> warn{};  // told what runs slower than it could; null: nobody
};

// Errors: kUnavailable (no driver, no such device), kInvalidArgument (a shape that no kernel serves, by
// name; a type of state that it lacks), kResourceExhausted (the weights do not fit).
Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelSpec& spec, const CudaBackendOptions& options);

}  // namespace loci
