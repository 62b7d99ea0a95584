// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/key_rotation.h"

#include <cmath>

#include "loci/base/check.h"

namespace loci::cpu {

void KeyRotation::rotate(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const {
  constexpr std::size_t kAlignment = 16;
  LOCI_CHECK(
      layer < spec_.layers.size() &&
          slice.size() == std::size_t{2} * spec_.kv_width() * kTokensPerBlock * sizeof(std::uint16_t) &&
          reinterpret_cast<std::uintptr_t>(slice.data()) % kAlignment == 0,
      "not a layer's slice");
  const std::optional<std::uint32_t> index = spec_.layers[layer].rope;
  if (delta == 0 || !index) return;
  const RopeSpec& rope = spec_.ropes[*index];
  const auto pairs = static_cast<std::uint32_t>(rope.inverse_frequency.size());
  const bool adjacent = rope.layout == RopeLayout::kAdjacent;
  auto* keys = reinterpret_cast<std::uint16_t*>(slice.data());  // [kv head][head_dim][token]
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const double angle = delta * rope.inverse_frequency[i];
    const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
    const std::uint32_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
    for (std::uint32_t head = 0; head < spec_.kv_heads; ++head) {
      std::uint16_t* of_head = keys + std::size_t{head} * spec_.head_dim * kTokensPerBlock;
      kernels_.turn_keys(of_head + first * kTokensPerBlock, of_head + second * kTokensPerBlock, cosine, sine);
    }
  }
}

}  // namespace loci::cpu
