// SPDX-License-Identifier: Apache-2.0
#include "loci/model/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "loci/base/random.h"
#include "loci/model/tensor_block.h"

namespace loci {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// IEEE 754's definition, in double.
double f16_by_definition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Tensor, ConvertsEveryF16) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    const double expected = f16_by_definition(half);
    const float found = f16_to_f32(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << i;
      EXPECT_EQ(std::signbit(found), half >> 15 != 0) << i;
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(found)))) << i;
    } else {
      EXPECT_EQ(bits_of(found), bits_of(static_cast<float>(expected))) << i;
      EXPECT_EQ(f32_to_f16(found), half) << i;
    }
  }
}

TEST(Tensor, ConvertsEveryBf16) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const int exponent = i >> 7 & 255, fraction = i & 127;
    const float found = bf16_to_f32(static_cast<std::uint16_t>(i));
    EXPECT_EQ(std::signbit(found), i >> 15 != 0) << i;
    if (exponent == 255) {
      EXPECT_EQ(std::isnan(found), fraction != 0) << i;
      EXPECT_EQ(std::isinf(found), fraction == 0) << i;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
      EXPECT_EQ(std::fabs(static_cast<double>(found)), magnitude) << i;
    }
  }
}

TEST(Tensor, RoundsToF16AtEveryMidpoint) {
  for (std::uint16_t low = 0; low < 0x7c00; ++low) {
    // The midpoint to the next f16; after the largest finite one, to 65536.
    const double next = low == 0x7bff ? 65536.0 : f16_by_definition(static_cast<std::uint16_t>(low + 1));
    const auto midpoint = static_cast<float>((f16_by_definition(low) + next) / 2);
    const auto high = static_cast<std::uint16_t>(low + 1);
    EXPECT_EQ(f32_to_f16(midpoint), low % 2 == 0 ? low : high) << low;
    EXPECT_EQ(f32_to_f16(std::nextafter(midpoint, 0.0f)), low) << low;
    EXPECT_EQ(f32_to_f16(std::nextafter(midpoint, INFINITY)), high) << low;
    EXPECT_EQ(f32_to_f16(-midpoint), 0x8000 | (low % 2 == 0 ? low : high)) << low;
  }
}

TEST(Tensor, RoundsRandomFloatsToF16) {
  Random random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
    const std::uint16_t found = f32_to_f16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(found)));
      continue;
    }
    int exponent = 0;
    std::frexp(value, &exponent);
    const double step = std::ldexp(1, std::max(exponent - 1, -14) - 10);
    double expected = std::nearbyint(value / step) * step;
    if (std::fabs(expected) >= 65536) expected = std::copysign(HUGE_VAL, value);
    EXPECT_EQ(f16_to_f32(found), expected) << value;
    EXPECT_EQ(found >> 15 != 0, std::signbit(value));
  }
}

TEST(Tensor, KnowsItsTypes) {
  EXPECT_EQ(find_tensor_type(3)->name, "Q4_1");
  EXPECT_EQ(find_tensor_type(16), nullptr);
  EXPECT_EQ(find_tensor_type(39)->name, "MXFP4");
  EXPECT_EQ(find_tensor_type(0xffffffff), nullptr);
  EXPECT_EQ(tensor_type_info(TensorType::kQ6_K).block_bytes, 210u);
  EXPECT_EQ(supported_tensor_types().size(), 16u);
}

// Each formula below follows GGUF's definition of a block, element by element, in double: every
// product and sum is exact there, so that one rounding remains.
double half_at(const std::uint8_t* bytes) {
  return f16_by_definition(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8));
}

double element_by_definition(TensorType type, const std::uint8_t* row, int index) {
  const TensorTypeInfo& info = tensor_type_info(type);
  const int i = index % static_cast<int>(info.block_elements);
  const std::uint8_t* b = row + index / info.block_elements * info.block_bytes;
  const auto nibble = [&](const std::uint8_t* quants) {
    return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
  };
  switch (type) {
    case TensorType::kF32: {
      float value;
      std::memcpy(&value, b, 4);
      return value;
    }
    case TensorType::kF16: return half_at(b);
    case TensorType::kBF16: return std::bit_cast<float>(static_cast<std::uint32_t>(b[0] << 16 | b[1] << 24));
    case TensorType::kQ8_0: return half_at(b) * static_cast<std::int8_t>(b[2 + i]);
    case TensorType::kQ4_0: return half_at(b) * (nibble(b + 2) - 8);
    case TensorType::kQ4_1: return half_at(b) * nibble(b + 4) + half_at(b + 2);
    case TensorType::kQ6_K: {
      const std::uint8_t *ql = b + 64 * (i / 128), *qh = b + 128 + 32 * (i / 128);
      const auto* scales = reinterpret_cast<const std::int8_t*>(b + 192 + 8 * (i / 128));
      const int l = i % 32, group = l / 16;
      int q = 0, scale = 0;
      switch (i % 128 / 32) {
        case 0: q = (ql[l] & 15) | (qh[l] & 3) << 4, scale = scales[group]; break;
        case 1: q = (ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4, scale = scales[group + 2]; break;
        case 2: q = ql[l] >> 4 | (qh[l] >> 4 & 3) << 4, scale = scales[group + 4]; break;
        case 3: q = ql[l + 32] >> 4 | (qh[l] >> 6) << 4, scale = scales[group + 6]; break;
      }
      return half_at(b + 208) * scale * (q - 32);
    }
    default: return NAN;
  }
}

TEST(Tensor, DecodesRandomBytesAsDefined) {
  Random random(7);
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ6_K}) {
    const TensorTypeInfo& info = tensor_type_info(type);
    const std::uint64_t rows = 64, columns = 768;
    std::vector<std::uint8_t> bytes(rows * columns / info.block_elements * info.block_bytes);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
    const TensorView tensor{"t", info.type, rows, columns, reinterpret_cast<const std::byte*>(bytes.data())};
    ASSERT_EQ(tensor.size_bytes(), bytes.size());
    std::vector<float> values(columns);
    for (std::uint64_t row = 0; row < rows; ++row) {
      decode_row(tensor, row, values);
      for (int i = 0; i < static_cast<int>(columns); ++i) {
        const double expected = element_by_definition(info.type, bytes.data() + row * tensor.row_bytes(), i);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(values[i])) << info.name << " " << row << " " << i;
        } else {
          EXPECT_EQ(values[i], static_cast<float>(expected)) << info.name << " " << row << " " << i;
        }
      }
    }
  }
}

struct GoldenBlocks {
  TensorType type;
  std::uint32_t blocks = 0;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

// tests/golden/make_tensor_golden.py says what the file holds.
std::vector<GoldenBlocks> read_golden() {
  const char* source = std::getenv("LOCI_SOURCE_DIR");
  std::ifstream file(std::string(source == nullptr ? "." : source) + "/tests/data/tensor/blocks.bin",
                     std::ios::binary);
  std::vector<GoldenBlocks> all;
  std::array<std::uint32_t, 4> head;
  while (file.read(reinterpret_cast<char*>(head.data()), sizeof(head))) {
    GoldenBlocks golden{static_cast<TensorType>(head[0]), head[1], std::vector<std::byte>(head[2]),
                        std::vector<float>(head[3])};
    file.read(reinterpret_cast<char*>(golden.bytes.data()), head[2]);
    file.read(reinterpret_cast<char*>(golden.values.data()), head[3] * sizeof(float));
    EXPECT_TRUE(file.good());
    all.push_back(std::move(golden));
  }
  return all;
}

TEST(Tensor, DecodesEveryQuantisedTypeAsGgufPyDoes) {
  const std::vector<GoldenBlocks> all = read_golden();
  ASSERT_EQ(all.size(), supported_tensor_types().size() - 3);  // all but F32, F16, BF16
  for (const GoldenBlocks& golden : all) {
    const TensorTypeInfo& info = tensor_type_info(golden.type);
    ASSERT_EQ(golden.bytes.size(), golden.blocks * info.block_bytes);
    const TensorView tensor{"t", golden.type, 1, golden.values.size(), golden.bytes.data()};
    std::vector<float> found(golden.values.size());
    decode_row(tensor, 0, found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(golden.values[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << info.name << " " << i;
      } else {
        EXPECT_EQ(bits_of(found[i]), bits_of(golden.values[i])) << info.name << " " << i;
      }
    }
  }
}

TEST(Tensor, PacksWhatItTookApart) {
  Random random(11);
  for (const TensorTypeInfo& info : supported_tensor_types()) {
    if (info.block_elements == 1) continue;
    for (int i = 0; i < 200; ++i) {
      std::vector<std::byte> bytes(info.block_bytes), packed(info.block_bytes);
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(random.next());
        if (info.type != TensorType::kMXFP4) continue;  // its second zero, code 8, isn't kept
        if ((byte & std::byte{15}) == std::byte{8}) byte ^= std::byte{1};
        if (byte >> 4 == std::byte{8}) byte ^= std::byte{0x10};
      }
      QuantBlock block;
      unpack_block(info.type, bytes.data(), block);
      pack_block(info.type, block, packed.data());
      EXPECT_EQ(bytes, packed) << info.name;
    }
  }
}

TEST(Tensor, DecodesHandMadeBlocks) {
  std::array<std::uint8_t, 210> bytes{};
  const auto view = [&](TensorType type, std::uint64_t columns) {
    return TensorView{"t", type, 1, columns, reinterpret_cast<const std::byte*>(bytes.data())};
  };
  std::vector<float> out(32);
  bytes = {0x00, 0x40, 0xf0, 0x2a};  // f16 2.0, then nibbles 0 and 15, 10 and 2
  decode_row(view(TensorType::kQ4_0, 32), 0, out);
  EXPECT_EQ(out[0], -16);
  EXPECT_EQ(out[16], 14);
  EXPECT_EQ(out[1], 4);
  EXPECT_EQ(out[17], -12);

  bytes = {0x00, 0x38, 0x00, 0xbc, 0xf0, 0x2a};  // f16 0.5 and -1.0, the same nibbles
  decode_row(view(TensorType::kQ4_1, 32), 0, out);
  EXPECT_EQ(out[0], -1);
  EXPECT_EQ(out[16], 6.5);
  EXPECT_EQ(out[1], 4);
  EXPECT_EQ(out[17], 0);

  bytes = {0x00, 0x3c, 0x80, 0x7f, 0xff};  // f16 1.0, then -128, 127, -1
  decode_row(view(TensorType::kQ8_0, 32), 0, out);
  EXPECT_EQ(out[0], -128);
  EXPECT_EQ(out[1], 127);
  EXPECT_EQ(out[2], -1);
  EXPECT_EQ(out[3], 0);

  out.resize(256);
  bytes = {};
  bytes[208] = 0x00, bytes[209] = 0x3c;  // f16 1.0
  bytes[192 + 8 + 7] = 3;                // scale of elements 240 to 255
  bytes[64 + 32 + 31] = 0xf0;            // low bits of elements 191 (low nibble) and 255 (high)
  bytes[128 + 32 + 31] = 0xc0;           // high bits of element 255
  decode_row(view(TensorType::kQ6_K, 256), 0, out);
  EXPECT_EQ(out[255], 3 * (63 - 32));
  EXPECT_EQ(out[254], 3 * (0 - 32));
  EXPECT_EQ(out[239], 0);  // its scale is 0
}

}  // namespace
}  // namespace loci
