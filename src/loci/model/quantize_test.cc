#include "loci/model/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
  const double scale_error = magnitude / 1024;  // the f16 scale's rounding, seen at the block's end
  switch (type) {
    case TensorType::kF32: return 0;
    case TensorType::kF16: return magnitude / 2048;
    case TensorType::kBF16: return magnitude / 256;
    case TensorType::kQ8_0: return magnitude / 127 / 2 + scale_error;
    case TensorType::kQ4_0: return magnitude / 8 + scale_error;
    case TensorType::kQ4_1: return (most - least) / 15 / 2 + 2 * scale_error;
    // Half a step where the step of a run is rounded up to a multiple of 1/127 of the largest.
    case TensorType::kQ6_K: return (magnitude / 31) * (1 + 1.0 / 127) / 2 + 2 * scale_error;
  }
  return 0;
}

TEST(Quantize, StaysWithinHalfAStep) {
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
