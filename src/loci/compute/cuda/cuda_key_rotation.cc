#include "loci/compute/cuda/cuda_key_rotation.h"

#include <bit>
#include <cmath>
#include <optional>

#include "loci/base/check.h"
#include "loci/compute/backend.h"

namespace loci::cuda {

namespace {

float to_float(ElementType element, std::uint16_t bits) {
  return element == ElementType::kHalf ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// To nearest, ties to even; keys are finite.
std::uint16_t from_float(ElementType element, float value) {
  if (element == ElementType::kHalf) return f32_to_f16(value);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

void rotate_block_keys(const ModelSpec& spec, ElementType element, std::uint32_t layer, std::int32_t delta,
                       std::span<std::byte> slice) {
  LOCI_CHECK(layer < spec.layers.size() &&
                 slice.size() == std::size_t{2} * spec.kv_width() * kBlockTokens * sizeof(std::uint16_t) &&
                 reinterpret_cast<std::uintptr_t>(slice.data()) % 16 == 0,
             "not a layer's slice");
  const std::optional<std::uint32_t> index = spec.layers[layer].rope;
  if (delta == 0 || !index) return;
  const RopeSpec& rope = spec.ropes[*index];
  const auto pairs = static_cast<std::uint32_t>(rope.inverse_frequency.size());
  const bool adjacent = rope.layout == RopeLayout::kAdjacent;
  auto* keys = reinterpret_cast<std::uint16_t*>(slice.data());  // [kv head][token][head_dim]
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const double angle = delta * rope.inverse_frequency[i];
    const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
    const std::uint32_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
    for (std::uint32_t row = 0; row < spec.kv_heads * kBlockTokens; ++row) {
      std::uint16_t& a = keys[std::size_t{row} * spec.head_dim + first];
      std::uint16_t& b = keys[std::size_t{row} * spec.head_dim + second];
      const float x = to_float(element, a), y = to_float(element, b);
      a = from_float(element, std::fma(x, cosine, -(y * sine)));
      b = from_float(element, std::fma(x, sine, y * cosine));
    }
  }
}

}  // namespace loci::cuda
