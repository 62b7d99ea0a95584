#include "loci/compute/cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace loci::cpu {

void RopeTable::extend(std::uint32_t positions) {
  if (positions <= positions_) return;
  positions = std::max(positions, 2 * positions_);
  const std::size_t pairs = spec_.inverse_frequency.size();
  values_.resize(positions * 2 * pairs);
  for (std::uint32_t p = positions_; p < positions; ++p) {
    float* row = values_.data() + p * 2 * pairs;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = p * spec_.inverse_frequency[i];
      row[i] = static_cast<float>(std::cos(angle));
      row[pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
  positions_ = positions;
}

RopeParams RopeTable::at(std::uint32_t position) const {
  const auto pairs = static_cast<std::uint32_t>(spec_.inverse_frequency.size());
  const float* row = values_.data() + std::size_t{position} * 2 * pairs;
  return {row, row + pairs, pairs, spec_.layout == RopeLayout::kAdjacent ? 1u : 0u};
}

}  // namespace loci::cpu
