// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary embedding by position, times the magnitude, computed in double and rounded
// once. It grows between passes and is only read during them.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/model_spec.h"

namespace loci::cpu {

class RopeTable {
 public:
  explicit RopeTable(const RopeSpec& spec) : spec_(spec) {}

  // Extends the table to positions [0, positions).
  void extend(std::uint32_t positions);
  RopeParams at(std::uint32_t position) const;

 private:
  RopeSpec spec_;
  std::uint32_t positions_ = 0;
  std::vector<float> values_;  // [position][cosine of each element | signed sine of each element]
};

}  // namespace loci::cpu
