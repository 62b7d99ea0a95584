// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/mixture.h"

#include <algorithm>
#include <limits>
#include <numbers>

namespace loci::cpu {

Mixture::Mixture(std::uint32_t experts, std::uint32_t uses, bool normalised)
    : experts_(experts),
      uses_(uses),
      normalised_(normalised),
      stride_((experts + kLanes - 1) / kLanes * kLanes) {}

void Mixture::resize(std::uint32_t rows) {
  scores_.resize(std::max(scores_.size(), std::size_t{rows} * stride_));
  choices_.resize(std::max(choices_.size(), std::size_t{rows} * uses_));
}

void Mixture::choose(const KernelTable& kernels, std::uint32_t row) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float* score = scores(row);
  Choice* chosen = choices_.data() + std::size_t{row} * uses_;
  // Kept sorted by score, descending; a later expert passes only those that are worse.
  for (std::uint32_t expert = 0; expert < experts_; ++expert) {
    if (!(score[expert] > kLowest)) score[expert] = kLowest;
    std::uint32_t place = std::min(expert, uses_);
    while (place > 0 && score[expert] > score[chosen[place - 1].expert]) --place;
    if (place == uses_) continue;
    for (std::uint32_t i = std::min(expert, uses_ - 1); i > place; --i) chosen[i] = chosen[i - 1];
    chosen[place].expert = expert;
  }
  const float largest = std::max(score[chosen[0].expert], std::numeric_limits<float>::lowest());
  for (std::uint32_t i = 0; i < experts_; ++i) score[i] = (score[i] - largest) * std::numbers::log2e_v<float>;
  std::fill(score + experts_, score + stride_, 0.0f);
  kernels.exp2(score, stride_, score);
  std::sort(chosen, chosen + uses_, [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
  float sum = 0;
  if (normalised_) {
    for (std::uint32_t i = 0; i < uses_; ++i) sum += score[chosen[i].expert];
  } else {
    for (std::uint32_t i = 0; i < experts_; ++i) sum += score[i];
  }
  for (std::uint32_t i = 0; i < uses_; ++i) chosen[i].weight = score[chosen[i].expert] / sum;
}

void Mixture::gather(const KernelTable& kernels, std::uint32_t rows) {
  const std::uint32_t total = rows * uses_;
  std::vector<std::uint32_t> begins(experts_ + 1, 0), counts;
  for (std::uint32_t i = 0; i < total; ++i) ++begins[choices_[i].expert + 1];
  used_.clear();
  for (std::uint32_t expert = 0; expert < experts_; ++expert) {
    if (begins[expert + 1] > 0) {
      used_.push_back({expert, 0, 0});
      counts.push_back(begins[expert + 1]);
    }
    begins[expert + 1] += begins[expert];
  }
  layout_ = TileLayout::of_parts(counts, kernels);
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    used_[i].first_tile = layout_.tile_of(row);
    row += counts[i];
    used_[i].end_tile = layout_.tile_of(row - 1) + 1;
  }
  sources_.resize(total);
  weights_.resize(total);
  for (std::uint32_t i = 0; i < total; ++i) {
    const std::uint32_t place = begins[choices_[i].expert]++;
    sources_[place] = i / uses_;
    weights_[place] = choices_[i].weight;
  }
}

}  // namespace loci::cpu
