// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary embedding by position, times the magnitude, computed in double and rounded
// once. It grows between passes and is only read during them. It grows by a chunk at a time, because a pass
// whose decodes wait computes it: a chunk takes a few milliseconds, and what was there before stays where it
// is.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/model_spec.h"

namespace loci::cpu {

class RopeTable {
 public:
  explicit RopeTable(const RopeSpec& spec) : spec_(spec) {}

  static constexpr std::uint32_t kChunkPositions = 1024;

  // Extends the table to positions [0, positions) at least.
  void extend(std::uint32_t positions);
  // How many it has: whole chunks.
  std::uint32_t positions() const { return static_cast<std::uint32_t>(chunks_.size()) * kChunkPositions; }
  RopeParams at(std::uint32_t position) const;

 private:
  void add_chunk();

  RopeSpec spec_;
  // [chunk][position in it][cosine of each element | signed sine of each element]
  std::vector<std::vector<float>> chunks_;
};

}  // namespace loci::cpu
