// SPDX-License-Identifier: Apache-2.0
// Weights in the layout that the kernels multiply (kernel_table.h), made from a tensor of a model's file.
// Packing keeps every bit of a weight and only moves it.
#pragma once

#include <cstdint>

#include "loci/base/status.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/tensor.h"

namespace loci::cpu {

struct PackedMatrix {
  PackedType type = PackedType::kF32;
  std::uint32_t rows = 0;     // outputs
  std::uint32_t columns = 0;  // inputs
  std::uint32_t groups = 0;   // of 16 rows each; the last one is padded with zeros
  std::uint32_t steps = 0;    // of kPackedStepColumns columns each
  std::uint64_t group_bytes = 0;
  std::uint8_t* data = nullptr;  // [groups][steps]; belongs to CpuWeights
  const float* bias = nullptr;   // [groups * 16], or nullptr

  bool quantized() const { return type < PackedType::kF32; }
  std::uint64_t size_bytes() const { return groups * group_bytes; }
  const std::uint8_t* group(std::uint32_t index) const { return data + index * group_bytes; }
};

// The packed shape of `tensor`, without data. Errors: kInvalidArgument naming the tensor if its columns are
// not whole blocks.
Result<PackedMatrix> describe_packed(const TensorView& tensor);

// Fills one group. Different threads may pack different groups at once.
void pack_group(const TensorView& tensor, const PackedMatrix& matrix, std::uint32_t group);

}  // namespace loci::cpu
