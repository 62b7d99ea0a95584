// SPDX-License-Identifier: Apache-2.0
#include "loci/model/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "loci/base/check.h"
#include "loci/model/quantize_fit.h"
#include "loci/model/tensor_block.h"

namespace loci {
namespace {

using Values = std::span<const float>;

// Sets the scale to an f16 near `value` and returns it.
float set_scale(QuantBlock& block, float value) {
  block.scale_bits = f32_to_f16(value);
  return block.scale = f16_to_f32(block.scale_bits);
}
float set_offset(QuantBlock& block, float value) {
  block.offset_bits = f32_to_f16(value);
  return block.offset = f16_to_f32(block.offset_bits);
}

int round_within(float value, int least, int most) {
  return static_cast<int>(std::lrint(std::clamp(value, static_cast<float>(least), static_cast<float>(most))));
}

float inverse(float value) { return value == 0 ? 0 : 1 / value; }

float largest_magnitude(Values values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// values[i] = nearest integer to (x[i] + floor) / step.
void set_values(QuantBlock& block, std::size_t first, Values x, float step, float floor, int least,
                int most) {
  const float per_step = inverse(step);
  for (std::size_t i = 0; i < x.size(); ++i) {
    block.values[first + i] = static_cast<std::int8_t>(round_within((x[i] + floor) * per_step, least, most));
  }
}

void encode_q8_0(Values x, QuantBlock& block) {
  set_values(block, 0, x, set_scale(block, largest_magnitude(x) / 127), 0, -127, 127);
}

void encode_symmetric(Values x, int levels, QuantBlock& block) {
  set_values(block, 0, x, set_scale(block, quantize::fit_symmetric(x, levels)), 0, -levels, levels - 1);
}

// Q4_1, Q5_1: the minimum has a sign.
void encode_with_minimum(Values x, int levels, QuantBlock& block) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const float step = set_scale(block, (*most - *least) / static_cast<float>(levels));
  set_values(block, 0, x, step, -set_offset(block, *least), 0, levels);
}

// Q3_K and Q6_K: int8 or six-bit scales of 16 elements, chosen so that no value leaves its range.
void encode_symmetric_k(Values x, int levels, int scale_limit, QuantBlock& block) {
  const float reach = static_cast<float>(levels - 1);
  const float super = set_scale(block, largest_magnitude(x) / reach / static_cast<float>(scale_limit));
  for (std::size_t g = 0; g < 16; ++g) {
    const Values group = x.subspan(g * 16, 16);
    const int scale =
        round_within(std::ceil(largest_magnitude(group) / reach * inverse(super)), 0, scale_limit);
    block.scales[g] = static_cast<std::int8_t>(scale);
    set_values(block, g * 16, group, super * static_cast<float>(scale), 0, -levels, levels - 1);
  }
}

// Q2_K, Q4_K, Q5_K: each group's step and floor become integers times two scales of the superblock. Fits the
// groups one by one, then looks among the integers next to each fit for those of least error.
class AffineEncoder {
 public:
  AffineEncoder(Values x, std::size_t group, int levels, int limit, QuantBlock& block)
      : x_(x), group_(group), levels_(levels), limit_(limit), block_(block) {}

  void encode() {
    const std::size_t groups = x_.size() / group_;
    float step = 0, floor = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      fits_[g] = quantize::fit_affine(group_of(g), levels_);
      step = std::max(step, fits_[g].step);
      floor = std::max(floor, fits_[g].floor);
    }
    const auto limit = static_cast<float>(limit_);
    float error = choose(step / limit, floor / limit);
    const QuantBlock first = block_;
    const auto [better_step, better_floor] = refine();
    if (choose(better_step, better_floor) > error) block_ = first;
  }

 private:
  Values group_of(std::size_t g) const { return x_.subspan(g * group_, group_); }

  // Integers and values for these scales of the superblock; returns the squared error.
  float choose(float super_step, float super_floor) {
    const float d = set_scale(block_, super_step), m = set_offset(block_, super_floor);
    float error = 0;
    for (std::size_t g = 0; g < x_.size() / group_; ++g) error += choose_group(g, d, m);
    return error;
  }

  float choose_group(std::size_t g, float d, float m) {
    const int scale = round_within(fits_[g].step * inverse(d), 0, limit_);
    const int minimum = round_within(fits_[g].floor * inverse(m), 0, limit_);
    float best_error = INFINITY;
    int best_scale = 0, best_minimum = 0;
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, limit_); ++s) {
      for (int n = std::max(minimum - 1, 0); n <= std::min(minimum + 1, limit_); ++n) {
        const quantize::Affine fit{d * static_cast<float>(s), m * static_cast<float>(n)};
        const float error = quantize::affine_error(group_of(g), fit, levels_);
        if (error < best_error) best_error = error, best_scale = s, best_minimum = n;
      }
    }
    block_.scales[g] = static_cast<std::int8_t>(best_scale);
    block_.offsets[g] = static_cast<std::uint8_t>(best_minimum);
    set_values(block_, g * group_, group_of(g), d * static_cast<float>(best_scale),
               m * static_cast<float>(best_minimum), 0, levels_);
    return best_error;
  }

  // The scales of the superblock that suit the integers chosen: least squares in two unknowns.
  std::pair<float, float> refine() const {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const std::size_t g = i / group_;
      const double a = static_cast<double>(block_.scales[g]) * block_.values[i], b = -block_.offsets[g];
      aa += a * a, ab += a * b, bb += b * b, ax += a * x_[i], bx += b * x_[i];
    }
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
      const double step = (ax * bb - bx * ab) / determinant, floor = (bx * aa - ax * ab) / determinant;
      if (step > 0 && floor > 0) return {static_cast<float>(step), static_cast<float>(floor)};
    }
    return {block_.scale, block_.offset};
  }

  const Values x_;
  const std::size_t group_;
  const int levels_;
  const int limit_;
  QuantBlock& block_;
  std::array<quantize::Affine, 16> fits_;
};

std::int8_t nearest_in(const std::array<std::int8_t, 16>& table, float value) {
  return *std::min_element(table.begin(), table.end(), [&](std::int8_t a, std::int8_t b) {
    return std::fabs(value - static_cast<float>(a)) < std::fabs(value - static_cast<float>(b));
  });
}

void set_table_values(QuantBlock& block, std::size_t first, Values x, float step,
                      const std::array<std::int8_t, 16>& table) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    block.values[first + i] = nearest_in(table, x[i] * inverse(step));
  }
}

void encode_iq4_nl(Values x, QuantBlock& block) {
  set_table_values(block, 0, x, set_scale(block, largest_magnitude(x) / 113), kIQ4Values);
}

void encode_iq4_xs(Values x, QuantBlock& block) {
  const float super = set_scale(block, largest_magnitude(x) / 113 / 31);
  for (std::size_t g = 0; g < 8; ++g) {
    const Values group = x.subspan(g * 32, 32);
    const int scale = round_within(std::ceil(largest_magnitude(group) / 113 * inverse(super)), 0, 31);
    block.scales[g] = static_cast<std::int8_t>(scale);
    set_table_values(block, g * 32, group, super * static_cast<float>(scale), kIQ4Values);
  }
}

// The scale is half of a power of two, the least with which 6 (12 halves) reaches the largest value.
void encode_mxfp4(Values x, QuantBlock& block) {
  const float largest = largest_magnitude(x);
  const int power = largest == 0 ? -128 : std::clamp(std::ilogb(largest / 12), -128, 126);
  const float scale = std::ldexp(1.0f, power) * 12 < largest && power < 127 ? std::ldexp(1.0f, power + 1)
                                                                            : std::ldexp(1.0f, power);
  block.scale = scale;
  block.scale_bits = f32_to_bf16(scale);
  set_table_values(block, 0, x, scale, kMXFP4Values);
}

void encode_block(TensorType type, Values x, std::byte* to) {
  QuantBlock block;
  switch (type) {
    case TensorType::kF32: std::memcpy(to, x.data(), sizeof(float)); return;
    case TensorType::kF16:
    case TensorType::kBF16: {
      const std::uint16_t bits = type == TensorType::kF16 ? f32_to_f16(x[0]) : f32_to_bf16(x[0]);
      std::memcpy(to, &bits, sizeof(bits));
      return;
    }
    case TensorType::kQ8_0: encode_q8_0(x, block); break;
    case TensorType::kQ4_0: encode_symmetric(x, 8, block); break;
    case TensorType::kQ5_0: encode_symmetric(x, 16, block); break;
    case TensorType::kQ4_1: encode_with_minimum(x, 15, block); break;
    case TensorType::kQ5_1: encode_with_minimum(x, 31, block); break;
    case TensorType::kQ2_K: AffineEncoder(x, 16, 3, 15, block).encode(); break;
    case TensorType::kQ4_K: AffineEncoder(x, 32, 15, 63, block).encode(); break;
    case TensorType::kQ5_K: AffineEncoder(x, 32, 31, 63, block).encode(); break;
    case TensorType::kQ3_K: encode_symmetric_k(x, 4, 31, block); break;
    case TensorType::kQ6_K: encode_symmetric_k(x, 32, 127, block); break;
    case TensorType::kIQ4_NL: encode_iq4_nl(x, block); break;
    case TensorType::kIQ4_XS: encode_iq4_xs(x, block); break;
    case TensorType::kMXFP4: encode_mxfp4(x, block); break;
  }
  pack_block(type, block, to);
}

}  // namespace

std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void encode_row(TensorType type, std::span<const float> values, std::span<std::byte> out) {
  const TensorTypeInfo& info = tensor_type_info(type);
  LOCI_CHECK(values.size() % info.block_elements == 0, "a row is a whole number of blocks");
  const std::size_t blocks = values.size() / info.block_elements;
  LOCI_CHECK(out.size() == blocks * info.block_bytes, "room for exactly the encoded row");
  for (std::size_t i = 0; i < blocks; ++i) {
    encode_block(type, values.subspan(i * info.block_elements, info.block_elements),
                 out.data() + i * info.block_bytes);
  }
}

}  // namespace loci
