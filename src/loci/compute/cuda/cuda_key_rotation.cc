// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_key_rotation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/backend.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cuda {

namespace {

struct F16 {
  static constexpr float kLargest = 65504.0f;
  static float read(std::uint16_t bits) { return f16_to_f32(bits); }
  static std::uint16_t write(float value) { return f32_to_f16(value); }
};
struct Bf16 {
  static constexpr float kLargest = 3.38953139e38f;
  static float read(std::uint16_t bits) { return bf16_to_f32(bits); }
  static std::uint16_t write(float value) { return f32_to_bf16(value); }
};

struct Turn {
  std::uint32_t first, second;  // dimensions
  float cosine, sine;
};

std::vector<Turn> turns_of(const RopeSpec& rope, std::int32_t delta) {
  const auto pairs = static_cast<std::uint32_t>(rope.inverse_frequency.size());
  const bool adjacent = rope.layout == RopeLayout::kAdjacent;
  std::vector<Turn> turns(pairs);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const double angle = delta * rope.inverse_frequency[i];
    turns[i] = {adjacent ? 2 * i : i, adjacent ? 2 * i + 1 : i + pairs, static_cast<float>(std::cos(angle)),
                static_cast<float>(std::sin(angle))};
  }
  return turns;
}

template <class Element>
std::uint16_t stored(float value) {
  return Element::write(std::fmin(std::fmax(value, -Element::kLargest), Element::kLargest));
}

// `keys`: [rows][head_dim]
template <class Element>
void turn_keys(std::uint16_t* keys, std::uint32_t rows, std::uint32_t head_dim,
               const std::vector<Turn>& turns) {
  for (std::uint32_t row = 0; row < rows; ++row, keys += head_dim) {
    for (const Turn& turn : turns) {
      const float a = Element::read(keys[turn.first]), b = Element::read(keys[turn.second]);
      keys[turn.first] = stored<Element>(std::fma(a, turn.cosine, b * -turn.sine));
      keys[turn.second] = stored<Element>(std::fma(b, turn.cosine, a * turn.sine));
    }
  }
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
  const std::vector<Turn> turns = turns_of(spec.ropes[*index], delta);
  auto* keys = reinterpret_cast<std::uint16_t*>(slice.data());  // [kv head][token][head_dim]
  const std::uint32_t rows = spec.kv_heads * kBlockTokens;
  if (element == ElementType::kHalf) {
    turn_keys<F16>(keys, rows, spec.head_dim, turns);
  } else {
    turn_keys<Bf16>(keys, rows, spec.head_dim, turns);
  }
}

void clear_block_tokens(const ModelSpec& spec, std::uint32_t layer, std::uint32_t first,
                        std::span<std::byte> slice) {
  const std::size_t token = std::size_t{spec.head_dim} * sizeof(std::uint16_t);
  const std::size_t heads = std::size_t{2} * spec.kv_heads;  // of keys, then of values
  LOCI_CHECK(
      layer < spec.layers.size() && first <= kBlockTokens && slice.size() == heads * kBlockTokens * token,
      "not a layer's slice");
  for (std::size_t head = 0; head < heads; ++head) {  // [token][head_dim]
    const std::span<std::byte> behind =
        slice.subspan((head * kBlockTokens + first) * token, (kBlockTokens - first) * token);
    std::fill(behind.begin(), behind.end(), std::byte{0});
  }
}

}  // namespace loci::cuda
