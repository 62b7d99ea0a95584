// SPDX-License-Identifier: Apache-2.0
// Compares the kernels between the products with float64, and bit for bit on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

// The result of `compute(kernels)` on the plain set, checked to be the same on all others.
template <class T, class Compute>
std::vector<T> on_all_sets(std::size_t count, const Compute& compute) {
  std::vector<T> expected(count);
  compute(plain_kernels(), expected.data());
  for (const InstructionSet set : available_instruction_sets()) {
    std::vector<T> found(count);
    compute(kernels_of(set), found.data());
    EXPECT_TRUE(same_bits(expected, found)) << instruction_set_name(set);
  }
  return expected;
}

TEST(ElementwiseTest, EveryF16BecomesItsF32) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<float> widened = on_all_sets<float>(
      all.size(), [&](const KernelTable& k, float* out) { k.f16_to_f32(all.data(), 65536, out); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float expected = f16_to_f32(all[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

TEST(ElementwiseTest, F32IsRoundedToTheNearestF16) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {  // each value, the midpoint to the next, and their neighbours
    const float low = f16_to_f32(static_cast<std::uint16_t>(i)),
                high = i == 0x7bff ? 65536.0f : f16_to_f32(static_cast<std::uint16_t>(i + 1));
    const float middle = low + (high - low) / 2;
    for (const float x : {low, std::nextafter(low, 1e9f), std::nextafter(middle, -1.0f), middle,
                          std::nextafter(middle, 1e9f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  for (std::uint32_t i = 0; i < 1u << 20; ++i) values.push_back(std::bit_cast<float>(i * 4093u));
  values.resize(values.size() / 16 * 16);
  const std::vector<std::uint16_t> rounded =
      on_all_sets<std::uint16_t>(values.size(), [&](const KernelTable& k, std::uint16_t* out) {
        k.f32_to_f16(values.data(), static_cast<std::uint32_t>(values.size()), out);
      });
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    ASSERT_EQ(rounded[i], f32_to_f16(values[i])) << values[i];
  }
}

TEST(ElementwiseTest, Exp2IsWithinItsBound) {
  std::vector<float> x;
  for (int i = -126 * 64; i <= 125 * 64; ++i) x.push_back(static_cast<float>(i) / 64 + 0.37f / 64);
  for (const float edge :
       {0.0f, -0.0f, 0.5f, -0.5f, 1.0f, -1e30f, 1e30f, -std::numeric_limits<float>::infinity()})
    x.push_back(edge);
  x.resize(x.size() / 16 * 16 + 16, 0.0f);
  const std::vector<float> y = on_all_sets<float>(x.size(), [&](const KernelTable& k, float* out) {
    k.exp2(x.data(), static_cast<std::uint32_t>(x.size()), out);
  });
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp2(std::clamp(static_cast<double>(x[i]), -125.0, 125.0));
    ASSERT_LT(std::abs(y[i] - expected), 2e-7 * expected) << x[i];
  }
}

TEST(ElementwiseTest, RmsNorm) {
  Random random(1);
  for (const std::uint32_t count : {8u, 16u, 40u, 64u, 100u, 576u, 2048u}) {
    const std::uint32_t padded = (count + 15) / 16 * 16;
    std::vector<float> x = normal_values(random, count, 3), weight = normal_values(random, count);
    x.resize(padded);
    weight.resize(padded);
    const std::vector<float> y = on_all_sets<float>(padded, [&](const KernelTable& k, float* out) {
      k.rms_norm(x.data(), weight.data(), count, padded, 1e-5f, out);
    });
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1 / std::sqrt(squares / count + 1e-5);
    for (std::uint32_t i = 0; i < count; ++i) {
      const double expected = x[i] * scale * weight[i];
      ASSERT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30);
    }
    for (std::uint32_t i = count; i < padded; ++i) ASSERT_EQ(y[i], 0);
  }
}

// Blocks of equal values are equal, whichever others they are quantised with.
TEST(ElementwiseTest, RowsAreQuantisedAsEachByItself) {
  Random random(7);
  for (std::uint32_t rows = 1; rows <= kMaxTileRows; ++rows) {
    std::vector<float> x = normal_values(random, rows * 32, 2);
    x[0] = 1e30f;
    if (rows > 2) std::fill_n(x.begin() + 64, 32, 0.0f);
    const std::size_t bytes = std::size_t{rows} * kTileBlockBytes;
    const auto together = on_all_sets<std::uint8_t>(
        bytes, [&](const KernelTable& k, std::uint8_t* out) { k.quantize_rows(x.data(), out, rows); });
    const auto each = on_all_sets<std::uint8_t>(bytes, [&](const KernelTable& k, std::uint8_t* out) {
      for (std::uint32_t row = 0; row < rows; ++row) k.quantize(x.data() + row * 32, 1, out, rows, row);
    });
    ASSERT_EQ(together, each) << rows;
  }
}

TEST(ElementwiseTest, QuantisedBlocksAreWithinHalfAStep) {
  Random random(2);
  for (const float deviation : {1e-34f, 1e-20f, 0.01f, 1.0f, 1e20f, 0.0f}) {
    for (std::uint32_t rows = 1; rows <= kMaxTileRows; ++rows) {
      const std::uint32_t blocks = 1 + rows % 9;  // fours of them, and what is left
      const std::vector<float> x = normal_values(random, blocks * 32, deviation);
      const std::vector<std::uint8_t> tile = on_all_sets<std::uint8_t>(
          std::size_t{blocks} * rows * kTileBlockBytes, [&](const KernelTable& k, std::uint8_t* out) {
            k.quantize(x.data(), blocks, out, rows, rows - 1);
          });
      for (std::uint32_t i = 0; i < blocks * 32; ++i) {
        const std::uint8_t* block = tile.data() + i / 32 * rows * kTileBlockBytes;
        const std::uint32_t at =
            rows < kWideTileRows ? (i % 32 / 4 * rows + rows - 1) * 4 + i % 4 : 32 * (rows - 1) + i % 32;
        const auto q = static_cast<std::int8_t>(block[at]);
        float scale = 0;
        std::memcpy(&scale, block + 32 * rows + 4 * (rows - 1), 4);
        ASSERT_NEAR(x[i], static_cast<double>(scale) * q, 0.50001 * scale + 0x1p-100) << deviation;
      }
    }
  }
}

TEST(ElementwiseTest, TanhAndErfAreWithinTheirBounds) {
  std::vector<float> x;
  for (int i = -12 * 256; i < 12 * 256; ++i) x.push_back((static_cast<float>(i) + 0.37f) / 256);
  for (int i = -120; i < 0; ++i) x.push_back(std::ldexp(1.3f, i));
  for (const float edge : {0.0f, -0.0f, 1e30f, -1e30f, std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity()})
    x.push_back(edge);
  x.resize(x.size() / 16 * 16 + 16, 0.0f);
  const auto count = static_cast<std::uint32_t>(x.size());
  const std::vector<float> tanh =
      on_all_sets<float>(x.size(), [&](const KernelTable& k, float* out) { k.tanh(x.data(), count, out); });
  const std::vector<float> erf =
      on_all_sets<float>(x.size(), [&](const KernelTable& k, float* out) { k.erf(x.data(), count, out); });
  const std::vector<float> capped = on_all_sets<float>(
      x.size(), [&](const KernelTable& k, float* out) { k.softcap(x.data(), count, 3, out); });
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    ASSERT_LE(std::abs(tanh[i] - std::tanh(value)), 4e-7 * std::abs(std::tanh(value))) << x[i];
    ASSERT_LE(std::abs(erf[i] - std::erf(value)), 4e-7 * std::abs(std::erf(value))) << x[i];
    ASSERT_LE(std::abs(capped[i] - 3 * std::tanh(value / 3)), 5e-7 * std::abs(3 * std::tanh(value / 3)))
        << x[i];
  }
}

// Of the value itself where it is large, and absolutely where the tail of Phi cancels.
double exact_activation(std::size_t activation, double x) {
  switch (activation) {
    case 0: return x / (1 + std::exp(-x));
    case 1: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case 2: return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case 3: return std::max(x, 0.0);
    default: return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
  }
}

TEST(ElementwiseTest, Activations) {
  Random random(3);
  std::vector<float> gate = normal_values(random, 2048, 4), up = normal_values(random, 2048, 4);
  gate[0] = -500, gate[1] = 500, gate[2] = 0, up[3] = 50, up[4] = -50;
  const auto count = static_cast<std::uint32_t>(gate.size());
  for (std::size_t a = 0; a < kActivations; ++a) {
    const std::vector<float> alone = on_all_sets<float>(
        count, [&](const KernelTable& k, float* out) { k.ungated[a](gate.data(), count, out); });
    const std::vector<float> gated = on_all_sets<float>(
        count, [&](const KernelTable& k, float* out) { k.gated[a](gate.data(), up.data(), count, out); });
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = exact_activation(a, gate[i]);
      const double bound = 1e-5 * std::abs(expected) + (a == 1 ? 5e-7 * std::abs(gate[i]) : 1e-30);
      const double factor = a == 4 ? std::clamp(static_cast<double>(up[i]), -7.0, 7.0) + 1 : up[i];
      ASSERT_NEAR(alone[i], expected, bound) << a << " of " << gate[i];
      ASSERT_NEAR(gated[i], expected * factor, bound * std::abs(factor) + 1e-30) << a << " of " << gate[i];
    }
  }
}

TEST(ElementwiseTest, LayerNorm) {
  Random random(7);
  for (const std::uint32_t count : {8u, 16u, 40u, 64u, 100u, 576u, 2048u}) {
    const std::uint32_t padded = (count + 15) / 16 * 16;
    std::vector<float> x = normal_values(random, count, 3), weight = normal_values(random, count),
                       bias = normal_values(random, count);
    for (float& value : x) value += 2;
    for (std::vector<float>* values : {&x, &weight, &bias}) values->resize(padded);
    double mean = 0, squares = 0;
    for (std::uint32_t i = 0; i < count; ++i) mean += static_cast<double>(x[i]) / count;
    for (std::uint32_t i = 0; i < count; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / std::sqrt(squares / count + 1e-5);
    for (const bool biased : {true, false}) {
      const std::vector<float> y = on_all_sets<float>(padded, [&](const KernelTable& k, float* out) {
        k.layer_norm(x.data(), weight.data(), biased ? bias.data() : nullptr, count, padded, 1e-5f, out);
      });
      for (std::uint32_t i = 0; i < count; ++i) {
        const double expected = (x[i] - mean) * scale * weight[i] + (biased ? bias[i] : 0);
        ASSERT_NEAR(y[i], expected, 2e-6 * (1 + std::abs(expected)));
      }
      for (std::uint32_t i = count; i < padded; ++i) ASSERT_EQ(y[i], 0);
    }
  }
}

TEST(ElementwiseTest, RopeTurnsPairs) {
  Random random(4);
  for (const std::uint32_t adjacent : {0u, 1u}) {
    for (const std::uint32_t pairs : {1u, 4u, 20u, 32u, 128u}) {
      const std::vector<float> head = normal_values(random, 2 * pairs + 8);
      std::vector<float> cosine(2 * pairs), sine(2 * pairs);
      for (std::uint32_t i = 0; i < pairs; ++i) {
        const double angle = 100 * random.unit();
        const std::uint32_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + pairs;
        cosine[a] = cosine[b] = static_cast<float>(std::cos(angle));
        sine[b] = static_cast<float>(std::sin(angle));
        sine[a] = -sine[b];
      }
      const std::vector<float> turned =
          on_all_sets<float>(head.size(), [&](const KernelTable& k, float* out) {
            std::copy(head.begin(), head.end(), out);
            k.rope(out, {cosine.data(), sine.data(), pairs, adjacent});
          });
      for (std::uint32_t i = 0; i < pairs; ++i) {
        const std::uint32_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + pairs;
        const double c = cosine[b], s = sine[b];
        ASSERT_NEAR(turned[a], head[a] * c - head[b] * s, 1e-6);
        ASSERT_NEAR(turned[b], head[a] * s + head[b] * c, 1e-6);
      }
      for (std::uint32_t i = 2 * pairs; i < head.size(); ++i) ASSERT_EQ(turned[i], head[i]);
    }
  }
}

TEST(ActivationsTest, StoredRowsAreLoadedBitForBit) {
  Random random(6);
  for (const ActivationForms forms :
       {ActivationForms{true, false}, ActivationForms{false, true}, ActivationForms{true, true}}) {
    Activations from(96, forms), to(96, forms);
    from.resize(29, plain_kernels());
    to.resize(5, plain_kernels());
    for (std::uint32_t row = 0; row < 29; ++row)
      from.set_row(plain_kernels(), row, normal_values(random, 96).data());
    std::vector<std::byte> stored(from.stored_row_bytes()), again(from.stored_row_bytes());
    for (std::uint32_t row = 0; row < 29; ++row) {
      from.store_row(row, stored);
      to.load_row(plain_kernels(), row % 5, stored);
      to.store_row(row % 5, again);
      EXPECT_EQ(stored, again);
    }
  }
}

}  // namespace
}  // namespace loci::cpu
