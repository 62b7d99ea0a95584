// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace loci::cpu {

void RopeTable::extend(std::uint32_t positions) {
  if (positions <= positions_) return;
  positions = std::max(positions, 2 * positions_);
  const std::size_t pairs = spec_.inverse_frequency.size();
  const bool adjacent = spec_.layout == RopeLayout::kAdjacent;
  values_.resize(positions * 4 * pairs);
  for (std::uint32_t p = positions_; p < positions; ++p) {
    float* cosine = values_.data() + p * 4 * pairs;
    float* sine = cosine + 2 * pairs;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = p * spec_.inverse_frequency[i];
      const std::size_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
      cosine[first] = cosine[second] = static_cast<float>(spec_.magnitude * std::cos(angle));
      sine[second] = static_cast<float>(spec_.magnitude * std::sin(angle));
      sine[first] = -sine[second];
    }
  }
  positions_ = positions;
}

RopeParams RopeTable::at(std::uint32_t position) const {
  const auto pairs = static_cast<std::uint32_t>(spec_.inverse_frequency.size());
  const float* row = values_.data() + std::size_t{position} * 4 * pairs;
  return {row, row + 2 * pairs, pairs, spec_.layout == RopeLayout::kAdjacent ? 1u : 0u};
}

}  // namespace loci::cpu
