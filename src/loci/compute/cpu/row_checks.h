// SPDX-License-Identifier: Apache-2.0
// Tells whether the rows of a tensor are still what they were. Somebody may write into a model's file while
// it is served; what is computed from other rows would be kept as the model's state.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/model/tensor.h"

namespace loci::cpu {

// Thread-safe once made. Takes 8 bytes a row.
class RowChecks {
 public:
  // Reads all of the tensor, which may be absent and must outlive this.
  explicit RowChecks(const TensorView& tensor);
  bool is_same(std::uint64_t row) const;

 private:
  const TensorView tensor_;
  std::vector<std::uint64_t> checks_;
};

}  // namespace loci::cpu
