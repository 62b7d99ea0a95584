// SPDX-License-Identifier: Apache-2.0
// The CPU backend: packed quantised weights, attention over scattered blocks, one pool of compute
// threads. Same bits on every path (docs/numerics.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/state_type.h"
#include "loci/model/model_spec.h"

namespace loci {

struct CpuBackendOptions {
  std::uint32_t threads = 0;                      // 0: one for each physical core
  std::optional<InstructionSet> instruction_set;  // absent: the best one that the machine has
  StateType state_type = StateType::kF16;         // or kQ8
};

// Packs the weights of `spec`. The file from which they are mapped must outlive the backend, which goes on
// reading the rows of the token and position embeddings. Errors: kInvalidArgument (a shape or tensor type
// that no kernel supports, by name; an instruction set that the machine lacks; kBF16), kResourceExhausted.
Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec& spec, const CpuBackendOptions& options);

}  // namespace loci
