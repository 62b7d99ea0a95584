// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/rope_table.h"

#include <cmath>
#include <utility>

namespace loci::cpu {

void RopeTable::extend(std::uint32_t positions) {
  while (this->positions() < positions) add_chunk();
}

void RopeTable::add_chunk() {
  const std::uint32_t first_position = positions();
  const std::size_t pairs = spec_.inverse_frequency.size();
  const bool adjacent = spec_.layout == RopeLayout::kAdjacent;
  std::vector<float> chunk(kChunkPositions * 4 * pairs);
  for (std::uint32_t row = 0; row < kChunkPositions; ++row) {
    float* cosine = chunk.data() + row * 4 * pairs;
    float* sine = cosine + 2 * pairs;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = (first_position + row) * spec_.inverse_frequency[i];
      const std::size_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
      cosine[first] = cosine[second] = static_cast<float>(spec_.magnitude * std::cos(angle));
      sine[second] = static_cast<float>(spec_.magnitude * std::sin(angle));
      sine[first] = -sine[second];
    }
  }
  chunks_.push_back(std::move(chunk));
}

RopeParams RopeTable::at(std::uint32_t position) const {
  const auto pairs = static_cast<std::uint32_t>(spec_.inverse_frequency.size());
  const float* row =
      chunks_[position / kChunkPositions].data() + std::size_t{position % kChunkPositions} * 4 * pairs;
  return {row, row + 2 * pairs, pairs, spec_.layout == RopeLayout::kAdjacent ? 1u : 0u};
}

}  // namespace loci::cpu
