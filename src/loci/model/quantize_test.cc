// SPDX-License-Identifier: Apache-2.0
#include "loci/model/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

std::vector<float> round_trip(TensorType type, const std::vector<float>& values) {
  TensorView tensor{"t", type, 1, values.size(), nullptr};
  std::vector<std::byte> bytes(tensor.row_bytes());
  encode_row(type, values, bytes);
  tensor.data = bytes.data();
  std::vector<float> out(values.size());
  decode_row(tensor, 0, out);
  return out;
}

// The largest error allowed for one element of a block with these extremes.
double bound(TensorType type, double least, double most) {
  const double magnitude = std::max(std::fabs(least), std::fabs(most));
  const double range = std::max(most, 0.0) - std::min(least, 0.0);  // what types with a floor must span
  const double scale_error = magnitude / 1024;  // the f16 scale's rounding, seen at the block's end
  switch (type) {
    case TensorType::kF32: return 0;
    case TensorType::kF16: return magnitude / 2048;
    case TensorType::kBF16: return magnitude / 256;
    case TensorType::kQ8_0: return magnitude / 127 / 2 + scale_error;
    case TensorType::kQ4_0: return magnitude / 8 + scale_error;
    case TensorType::kQ5_0: return magnitude / 16 + scale_error;
    case TensorType::kQ4_1: return (most - least) / 15 / 2 + 2 * scale_error;
    case TensorType::kQ5_1: return (most - least) / 31 / 2 + 2 * scale_error;
    // Half a step where the step of a run is rounded up to a multiple of 1/127 or 1/31 of the largest.
    case TensorType::kQ6_K: return (magnitude / 31) * (1 + 1.0 / 127) / 2 + 2 * scale_error;
    case TensorType::kQ3_K: return (magnitude / 3) * (1 + 1.0 / 31) / 2 + 2 * scale_error;
    // One step: ends may be clipped where that makes the whole error less.
    case TensorType::kQ2_K: return range / 3 * 1.1 + 2 * scale_error;
    case TensorType::kQ4_K: return range / 15 * 1.1 + 2 * scale_error;
    case TensorType::kQ5_K: return range / 31 * 1.1 + 2 * scale_error;
    // Half of the table's widest gap (24 of 113; -127 is beyond), times what rounding the scale up adds.
    case TensorType::kIQ4_NL: return magnitude / 113 * 12 + scale_error;
    case TensorType::kIQ4_XS: return magnitude / 113 * (1 + 1.0 / 31) * 12 + 2 * scale_error;
    // The widest gap is 4 of 12, and the power of two is up to twice what was needed.
    case TensorType::kMXFP4: return magnitude / 12 * 2 * 2;
  }
  return 0;
}

TEST(Quantize, StaysWithinAStep) {
  Random random(3);
  for (const TensorTypeInfo& info : supported_tensor_types()) {
    for (const double offset : {0.0, 0.7, -3.0}) {
      std::vector<float> values(2048);
      for (float& value : values) value = static_cast<float>(random.unit() * 2 - 1 + offset);
      const std::vector<float> found = round_trip(info.type, values);
      for (std::size_t start = 0; start < values.size(); start += info.block_elements) {
        const auto [least, most] =
            std::minmax_element(values.begin() + static_cast<std::ptrdiff_t>(start),
                                values.begin() + static_cast<std::ptrdiff_t>(start + info.block_elements));
        const double allowed = bound(info.type, *least, *most);
        for (std::size_t i = start; i < start + info.block_elements; ++i) {
          EXPECT_LE(std::fabs(found[i] - values[i]), allowed) << info.name << " " << offset << " " << i;
        }
      }
    }
  }
}

TEST(Quantize, KeepsZerosAndConstants) {
  for (const TensorTypeInfo& info : supported_tensor_types()) {
    EXPECT_EQ(round_trip(info.type, std::vector<float>(256, 0.0f)), std::vector<float>(256, 0.0f))
        << info.name;
  }
  EXPECT_EQ(round_trip(TensorType::kQ4_1, std::vector<float>(32, 1.5f)), std::vector<float>(32, 1.5f));
}

// Mean squared error over the values' mean square.
double relative_error(const std::vector<float>& values, const std::vector<float>& found) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - values[i];
    error += difference * difference;
    size += static_cast<double>(values[i]) * values[i];
  }
  return error / size;
}

// Rounds to `levels` equal steps from the least to the largest value of each 32, or from minus to plus the
// largest magnitude: what the search is compared with. Its steps aren't even rounded to f16.
std::vector<float> plainly_rounded(const std::vector<float>& values, int levels, bool symmetric) {
  std::vector<float> out(values.size());
  for (std::size_t start = 0; start < values.size(); start += 32) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(start);
    auto [low, high] = std::minmax_element(begin, begin + 32);
    const float magnitude = std::max(std::fabs(*low), std::fabs(*high));
    const float least = symmetric ? -magnitude : *low, most = symmetric ? magnitude : *high;
    const float step = (most - least) / static_cast<float>(levels);
    for (std::size_t i = start; i < start + 32; ++i) {
      out[i] = least + step * std::nearbyint((values[i] - least) / step);
    }
  }
  return out;
}

// Normal, as trained weights nearly are, and with the heavy tails of the worst of them.
TEST(Quantize, SearchesForLessErrorThanPlainRounding) {
  Random random(5);
  std::vector<float> normal(64 * 256), heavy(64 * 256);
  for (std::size_t i = 0; i < normal.size(); ++i) {
    double sum = -6;
    for (int k = 0; k < 12; ++k) sum += random.unit();
    normal[i] = static_cast<float>(0.02 * sum);
    heavy[i] = static_cast<float>(0.02 * sum * sum * sum);
  }
  for (const auto* values : {&normal, &heavy}) {
    const double affine = relative_error(*values, plainly_rounded(*values, 15, false));
    const double symmetric = relative_error(*values, plainly_rounded(*values, 15, true));
    const double q4_k = relative_error(*values, round_trip(TensorType::kQ4_K, *values));
    const double q4_0 = relative_error(*values, round_trip(TensorType::kQ4_0, *values));
    RecordProperty(values == &normal ? "q4_k_normal" : "q4_k_heavy", std::to_string(q4_k / affine));
    RecordProperty(values == &normal ? "q4_0_normal" : "q4_0_heavy", std::to_string(q4_0 / symmetric));
    EXPECT_LT(q4_k, 0.9 * affine);
    EXPECT_LT(q4_0, 0.9 * symmetric);
    EXPECT_LT(q4_k, q4_0);
  }
}

TEST(Quantize, RoundsBf16ToEven) {
  for (std::uint32_t i = 0; i < 0x7f7f; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const auto midpoint = static_cast<float>((static_cast<double>(bf16_to_f32(low)) + bf16_to_f32(high)) / 2);
    EXPECT_EQ(f32_to_bf16(bf16_to_f32(low)), low);
    EXPECT_EQ(f32_to_bf16(midpoint), low % 2 == 0 ? low : high) << i;
    EXPECT_EQ(f32_to_bf16(std::nextafter(midpoint, 0.0f)), low) << i;
    EXPECT_EQ(f32_to_bf16(std::nextafter(midpoint, INFINITY)), high) << i;
  }
}

}  // namespace
}  // namespace loci
