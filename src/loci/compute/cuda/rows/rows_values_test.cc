// SPDX-License-Identifier: Apache-2.0
// Functions of single values, and the feed of tokens.
#include <fmt/format.h>

#include <limits>

#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/rows/rows_testing.h"

namespace loci::cuda {
namespace {

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kClampedSwiglu};

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kClampedSwiglu: return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
  }
  return 0;
}

class ValuesTest : public RowsTest {
 protected:
  void check(Activation activation, bool gated, ElementType type, std::uint32_t rows, std::uint32_t width) {
    const std::uint32_t stride = gated ? 2 * width : width;
    std::vector<std::uint16_t> input = elements(type, std::size_t{rows} * stride, -9, 9);
    for (std::size_t i = 0; i < input.size(); i += 5) {  // also far from zero, and very near
      const float sign = coin() ? 1.0f : -1.0f;
      input[i] = element_bits(type, sign * std::exp2(uniform(-14, 15.9f)));
    }
    const Memory on_device = upload(input);
    const Output<std::uint16_t> output(*this, std::size_t{rows} * width);
    activate({.input = on_device.data(),
              .output = output.data(),
              .gated = gated,
              .activation = activation,
              .rows = rows,
              .width = width,
              .type = type},
             stream());
    const std::vector<std::uint16_t> got = output.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t at = i / width * stride + i % width;
      const double x = element_value(type, input[at]);
      double up = gated ? element_value(type, input[at + width]) : 1;
      if (activation == Activation::kClampedSwiglu) up = std::min(std::max(up, -7.0), 7.0) + 1;
      const double want = activated(activation, x) * up;
      // erf's and the exponential's errors are absolute where the result is a small difference.
      const double slack = 1e-6 * std::fabs(want) + 3e-7 * std::fabs(x * up) + 1e-30;
      expect_element(type, got[i], want, slack,
                     fmt::format("activation {} {} of {}", static_cast<int>(activation), name_of(type), x));
    }
  }
};

TEST_F(ValuesTest, Activates) {
  for (const ElementType type : kElementTypes) {
    for (const Activation activation : kActivations) {
      for (const bool gated : {true, false}) {
        if (!gated && activation == Activation::kClampedSwiglu) continue;
        check(activation, gated, type, 1, 8);
        check(activation, gated, type, 3, 33);
        check(activation, gated, type, 5, 520);
        if (!simulated()) check(activation, gated, type, 333, 14336);
      }
    }
  }
}

TEST_F(ValuesTest, NaNStays) {
  std::vector<std::uint16_t> input(16, element_bits(ElementType::kHalf, 1.0f));
  input[2] = 0x7e00;
  const Memory on_device = upload(input);
  const Output<std::uint16_t> output(*this, 8);
  for (const Activation activation : kActivations) {
    activate({.input = on_device.data(),
              .output = output.data(),
              .activation = activation,
              .rows = 1,
              .width = 8,
              .type = ElementType::kHalf},
             stream());
    const std::vector<std::uint16_t> got = output.values();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(f16_to_f32(got[i])), i == 2);
  }
}

// A library's product leaves infinite values where others leave the largest one.
TEST_F(ValuesTest, InfinityIsTheLargestValue) {
  for (const ElementType type : kElementTypes) {
    const auto infinity = static_cast<std::uint16_t>(type == ElementType::kHalf ? 0x7c00 : 0x7f80);
    const auto largest = static_cast<std::uint16_t>(infinity - 1), sign = std::uint16_t{0x8000};
    const std::uint32_t width = 8, rows = 4;  // of runs of 8 values, and with an odd width of single ones
    for (const std::uint32_t odd : {0u, 1u}) {
      std::vector<std::uint16_t> infinite(std::size_t{rows} * 2 * (width + odd), element_bits(type, 0.5f));
      std::vector<std::uint16_t> finite = infinite;
      for (std::size_t i = 0; i < infinite.size(); i += 3) {
        const std::uint16_t minus = coin() ? sign : std::uint16_t{0};
        infinite[i] = infinity | minus;
        finite[i] = largest | minus;
      }
      const Memory given = upload(infinite), expected = upload(finite);
      for (const Activation activation : kActivations) {
        const auto run = [&](const Memory& input) {
          const Output<std::uint16_t> output(*this, std::size_t{rows} * (width + odd));
          activate({.input = input.data(),
                    .output = output.data(),
                    .activation = activation,
                    .rows = rows,
                    .width = width + odd,
                    .type = type},
                   stream());
          return output.values();
        };
        const std::vector<std::uint16_t> got = run(given);
        EXPECT_EQ(got, run(expected)) << static_cast<int>(activation) << " " << name_of(type);
        for (const std::uint16_t bits : got) EXPECT_TRUE(std::isfinite(element_value(type, bits)));
      }
    }
  }
}

TEST_F(ValuesTest, CapsLogits) {
  for (const std::uint32_t count : {1u, 255u, 1000u}) {
    const std::vector<float> logits = floats(count, -100, 100);
    const Output<float> capped(*this, count);
    const Memory given = upload(logits);
    stream().copy(capped.data(), given.data(), given.size());
    cap_logits(capped.data(), count, 30, stream());
    const std::vector<float> got = capped.values();
    for (std::uint32_t i = 0; i < count; ++i) {
      expect_near(got[i], 30 * std::tanh(static_cast<double>(logits[i]) / 30), 1e-5, "capped");
    }
  }
}

TEST_F(ValuesTest, FeedsTokens) {
  const std::vector<std::uint32_t> samples{70, 71, 72, 73};
  for (const std::uint32_t rows : {1u, 9u, 300u}) {
    std::vector<std::uint32_t> tokens(rows), sources(rows), want(rows);
    for (std::uint32_t i = 0; i < rows; ++i) {
      tokens[i] = i;
      sources[i] = coin() ? below(4) : FeedArguments::kNone;
      want[i] = sources[i] == FeedArguments::kNone ? i : samples[sources[i]];
    }
    const Memory from = upload(sources), sampled = upload(samples), given = upload(tokens);
    const Output<std::uint32_t> fed(*this, rows);
    stream().copy(fed.data(), given.data(), given.size());
    feed_tokens({.sources = from.as<std::uint32_t>(),
                 .samples = sampled.as<std::uint32_t>(),
                 .tokens = fed.data(),
                 .rows = rows},
                stream());
    EXPECT_EQ(fed.values(), want);
  }
}

}  // namespace
}  // namespace loci::cuda
