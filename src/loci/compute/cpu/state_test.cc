// SPDX-License-Identifier: Apache-2.0
// How keys and values are rounded when they are stored, turned and copied, in every type of state and on
// every instruction set, against docs/numerics.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

constexpr float kLargest = 65504;

// A head as its type rounds it.
std::vector<float> rounded(StateType type, std::vector<float> x) {
  for (float& value : x) value = std::isnan(value) ? -kLargest : std::clamp(value, -kLargest, kLargest);
  if (type == StateType::kF16) {
    for (float& value : x) value = f16_to_f32(f32_to_f16(value));
    return x;
  }
  const std::uint32_t group = q8_group_size(static_cast<std::uint32_t>(x.size()));
  for (std::size_t first = 0; first < x.size(); first += group) {
    const std::size_t end = std::min(x.size(), first + group);
    double largest = 0, unit = std::ldexp(1.0, -32);
    for (std::size_t i = first; i < end; ++i) largest = std::max<double>(largest, std::abs(x[i]));
    while (largest >= 127.5 * unit) unit *= 2;
    for (std::size_t i = first; i < end; ++i) x[i] = static_cast<float>(std::nearbyint(x[i] / unit) * unit);
  }
  return x;
}

// One head's part of a block.
struct Head {
  StateType type;
  std::uint32_t head_dim;
  StateLayout layout;
  std::vector<std::uint8_t> slice;

  Head(StateType of, std::uint32_t dim)
      : type(of), head_dim(dim), layout(of, 1, dim), slice(layout.slice_bytes()) {}
  // (It changes nothing: a HeadState's pointers are of writers and readers.)
  HeadState state() const { return layout.head(const_cast<std::uint8_t*>(slice.data()), 0); }
  void store(const KernelTable& kernels, const std::vector<float>& x, std::uint32_t token) {
    std::vector<float> padded = x;
    padded.resize(x.size() + 16, std::numeric_limits<float>::infinity());  // without effect
    layout.kernels(kernels).store_key(padded.data(), head_dim, state(), token);
    layout.kernels(kernels).store_value(padded.data(), head_dim, state(), token);
  }
  std::vector<float> key(std::uint32_t token) const { return read(stored_key, token); }
  std::vector<float> value(std::uint32_t token) const { return read(stored_value, token); }

 private:
  std::vector<float> read(decltype(stored_key) of, std::uint32_t token) const {
    std::vector<float> x;
    for (std::uint32_t dim = 0; dim < head_dim; ++dim) x.push_back(of(type, state(), head_dim, token, dim));
    return x;
  }
};

// Values of any magnitude, with what no type holds among them.
std::vector<float> wild_values(Random& random, std::uint32_t head_dim) {
  const int exponent = static_cast<int>(random.below(160)) - 120;
  std::vector<float> x = normal_values(random, head_dim, std::ldexp(1.0f, exponent));
  if (random.below(4) == 0) {
    // Just below and above where the scale changes.
    x[random.below(head_dim)] = std::ldexp(127.5f, exponent);
    x[random.below(head_dim)] = std::nextafter(std::ldexp(127.5f, exponent), 0.0f);
  }
  if (random.below(16) == 0) x[random.below(head_dim)] = -std::numeric_limits<float>::infinity();
  if (random.below(16) == 0) x[random.below(head_dim)] = std::numeric_limits<float>::quiet_NaN();
  if (random.below(16) == 0) std::fill(x.begin(), x.end(), random.below(2) == 0 ? 0.0f : -0.0f);
  return x;
}

class StateTest : public testing::TestWithParam<std::tuple<StateType, std::uint32_t>> {
 protected:
  const StateType type_ = std::get<0>(GetParam());
  const std::uint32_t head_dim_ = std::get<1>(GetParam());
};

TEST_P(StateTest, IsRoundedAsDefinedAndFiniteAndTouchesNothingElse) {
  Random random(head_dim_);
  Head expected(type_, head_dim_);
  std::vector<Head> found;
  for (std::size_t i = 0; i < available_instruction_sets().size(); ++i) found.emplace_back(type_, head_dim_);
  std::vector<std::vector<float>> tokens(kTokensPerBlock, std::vector<float>(head_dim_));
  for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
    expected.store(plain_kernels(), tokens[t], t);
    for (Head& head : found) head.store(plain_kernels(), tokens[t], t);
  }
  for (int round = 0; round < 400; ++round) {
    const auto token = static_cast<std::uint32_t>(random.below(kTokensPerBlock));
    const std::vector<float> x = wild_values(random, head_dim_);
    tokens[token] = rounded(type_, x);
    expected.store(plain_kernels(), x, token);
    for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
      ASSERT_EQ(expected.key(t), tokens[t]) << round << " wrote " << token;
      ASSERT_EQ(expected.value(t), tokens[t]) << round << " wrote " << token;
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      const InstructionSet set = available_instruction_sets()[i];
      found[i].store(kernels_of(set), x, token);
      ASSERT_EQ(found[i].slice, expected.slice) << instruction_set_name(set);
    }
  }
}

TEST_P(StateTest, EncodesToItselfAgain) {
  Random random(head_dim_ + 1);
  Head head(type_, head_dim_);
  for (int round = 0; round < 2000; ++round) {
    head.store(plain_kernels(), wild_values(random, head_dim_), 5);
    const std::vector<std::uint8_t> once = head.slice;
    head.store(plain_kernels(), head.key(5), 5);
    ASSERT_EQ(head.slice, once) << round;
  }
}

TEST_P(StateTest, KeysTurnAndStayFinite) {
  Random random(head_dim_ + 2);
  for (int round = 0; round < 30; ++round) {
    Head before(type_, head_dim_);
    for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
      const float deviation = round % 2 == 0 ? 1 : 40000;
      before.store(plain_kernels(), normal_values(random, head_dim_, deviation), t);
    }
    const auto pairs = static_cast<std::uint32_t>(random.below(head_dim_ / 2 + 1));
    std::vector<float> cosine, sine;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      const double angle = 1000 * random.unit();
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
    const KeyTurn turn{cosine.data(), sine.data(), pairs, static_cast<std::uint32_t>(round / 2 % 2)};
    for (const InstructionSet set : available_instruction_sets()) {
      Head turned = before;
      turned.layout.kernels(kernels_of(set)).turn_keys(turned.state(), head_dim_, turn);
      for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
        const std::vector<float> key = before.key(t);
        std::vector<float> expected = key;
        for (std::uint32_t i = 0; i < pairs; ++i) {
          const std::uint32_t a = turn.adjacent ? 2 * i : i, b = turn.adjacent ? 2 * i + 1 : i + pairs;
          expected[a] = std::fma(key[a], cosine[i], key[b] * -sine[i]);
          expected[b] = std::fma(key[b], cosine[i], key[a] * sine[i]);
        }
        ASSERT_EQ(turned.key(t), rounded(type_, expected)) << instruction_set_name(set);
        ASSERT_EQ(turned.value(t), before.value(t)) << "values have no position";
      }
    }
  }
}

TEST_P(StateTest, CopiesTheFirstTokensAndNoOthers) {
  Random random(head_dim_ + 3);
  constexpr std::uint32_t kHeads = 3;
  const StateLayout layout(type_, kHeads, head_dim_);
  for (std::uint32_t tokens = 0; tokens <= kTokensPerBlock; ++tokens) {
    std::vector<std::uint8_t> from(layout.slice_bytes()), to(layout.slice_bytes());
    for (std::uint8_t& byte : from) byte = static_cast<std::uint8_t>(random.below(120));  // finite as f16
    for (std::uint8_t& byte : to) byte = static_cast<std::uint8_t>(random.below(120));
    const std::vector<std::uint8_t> before = to;
    layout.copy_tokens(from.data(), to.data(), tokens);
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
        std::vector<std::uint8_t> source = t < tokens ? from : before;
        for (std::uint32_t dim = 0; dim < head_dim_; ++dim) {
          const HeadState a = layout.head(source.data(), head), b = layout.head(to.data(), head);
          ASSERT_EQ(stored_key(type_, a, head_dim_, t, dim), stored_key(type_, b, head_dim_, t, dim));
          ASSERT_EQ(stored_value(type_, a, head_dim_, t, dim), stored_value(type_, b, head_dim_, t, dim));
        }
      }
    }
  }
}

TEST_P(StateTest, ClearsWhatFollowsTheFirstTokens) {
  Random random(head_dim_ + 4);
  const StateLayout layout(type_, 3, head_dim_);
  for (std::uint32_t tokens = 0; tokens <= kTokensPerBlock; ++tokens) {
    std::vector<std::uint8_t> slice(layout.slice_bytes()), only(layout.slice_bytes());
    for (std::uint8_t& byte : slice) byte = static_cast<std::uint8_t>(1 + random.below(119));
    layout.copy_tokens(slice.data(), only.data(), tokens);
    layout.clear_tokens(slice.data(), tokens);
    ASSERT_EQ(slice, only) << tokens;
    const auto zeros = static_cast<std::size_t>(std::count(slice.begin(), slice.end(), 0));
    ASSERT_EQ(zeros * kTokensPerBlock, slice.size() * (kTokensPerBlock - tokens)) << "as many bytes a token";
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndHeadDims, StateTest,
                         testing::Combine(testing::Values(StateType::kF16, StateType::kQ8),
                                          testing::Values(8, 16, 24, 40, 64, 80, 96, 256)),
                         [](const auto& tested) {
                           return std::string(state_type_name(std::get<0>(tested.param))) + "_" +
                                  std::to_string(std::get<1>(tested.param));
                         });

TEST(StateLayoutTest, Q8TakesLittleMoreThanHalf) {
  for (std::uint32_t head_dim = 16; head_dim <= kMaxHeadDim; head_dim += 8) {
    const StateLayout f16(StateType::kF16, 5, head_dim), q8(StateType::kQ8, 5, head_dim);
    EXPECT_LE(static_cast<double>(q8.slice_bytes()), 0.55 * static_cast<double>(f16.slice_bytes()))
        << head_dim;
    EXPECT_EQ(f16.slice_bytes(), 5 * 2 * 32 * state_head_bytes(StateType::kF16, head_dim));
    EXPECT_EQ(q8.slice_bytes(), 5 * 2 * 32 * state_head_bytes(StateType::kQ8, head_dim));
    EXPECT_EQ(q8.slice_bytes() % 64, 0u) << "slices begin on cache lines";
    EXPECT_NE(f16.name(), q8.name());
  }
}

}  // namespace
}  // namespace loci::cpu
