// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/key_rotation.h"

#include <cmath>
#include <vector>

#include "loci/base/check.h"

namespace loci::cpu {

void KeyRotation::rotate(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const {
  constexpr std::size_t kAlignment = 16;
  LOCI_CHECK(layer < spec_.layers.size() && slice.size() == layout_.slice_bytes() &&
                 reinterpret_cast<std::uintptr_t>(slice.data()) % kAlignment == 0,
             "not a layer's slice");
  const std::optional<std::uint32_t> index = spec_.layers[layer].rope;
  if (delta == 0 || !index) return;
  const RopeSpec& rope = spec_.ropes[*index];
  const auto pairs = static_cast<std::uint32_t>(rope.inverse_frequency.size());
  std::vector<float> cosine(pairs), sine(pairs);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const double angle = delta * rope.inverse_frequency[i];
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(std::sin(angle));
  }
  const KeyTurn turn{cosine.data(), sine.data(), pairs, rope.layout == RopeLayout::kAdjacent ? 1u : 0u};
  for (std::uint32_t head = 0; head < spec_.kv_heads; ++head) {
    kernels_.turn_keys(layout_.head(reinterpret_cast<std::uint8_t*>(slice.data()), head), spec_.head_dim,
                       turn);
  }
}

}  // namespace loci::cpu
