// Packing: a matrix of the file becomes the layout that the products read (linear.inl).
#pragma once

#include <cstdint>
#include <memory>

#include "loci/base/status.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/tensor.h"

namespace loci {

struct PackedMatrix {
  PackedFormat format = PackedFormat::kF32;
  std::uint32_t outputs = 0;
  std::uint32_t groups = 0;    // outputs / 16, rounded up; lanes beyond are zero
  std::uint32_t blocks = 0;    // columns / 32, rounded up; columns beyond are zero
  std::uint64_t bytes = 0;
  std::shared_ptr<std::uint8_t> data;

  std::uint64_t group_bytes() const { return bytes / groups; }
  bool quantised() const { return format <= PackedFormat::kQ6_K; }
};

// Allocates. Errors: kInvalidArgument naming the tensor and its type; kResourceExhausted.
Result<PackedMatrix> make_packed(const TensorView& tensor);
// Fills the groups [begin, end) of a matrix that make_packed made. Thread-safe for disjoint ranges.
void pack_groups(const TensorView& tensor, PackedMatrix& packed, std::uint32_t begin, std::uint32_t end);

}  // namespace loci
