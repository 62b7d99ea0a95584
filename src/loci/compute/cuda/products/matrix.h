// A model's matrix in device memory.
#pragma once

#include <cstdint>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/model/tensor.h"

namespace loci::cuda {

enum class MatrixFormat : std::uint8_t { kHalf, kBFloat16, kQ8_0, kQ4_0, kQ4_K };

// [rows = outputs][columns = inputs]; several tensors of one width may be stacked (query, key, value).
struct DeviceMatrix {
  MatrixFormat format = MatrixFormat::kBFloat16;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  Memory data;
  std::uint64_t size_bytes() const { return data.size(); }
  bool present() const { return rows > 0; }
};

}  // namespace loci::cuda
