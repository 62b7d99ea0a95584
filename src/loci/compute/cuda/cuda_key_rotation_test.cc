// SPDX-License-Identifier: Apache-2.0
// Keys taken to other positions: in f16 bit for bit what the CPU backend makes of them
// (cpu/key_rotation_test.cc has that against float64), in bf16 against float64.
#include "loci/compute/cuda/cuda_key_rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/compute/cpu/key_rotation.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cuda {
namespace {

struct Slice {
  std::vector<std::uint16_t> values;  // [K: kv head, token, dim | V: kv head, token, dim]
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(values)); }
};

ModelSpec make_spec(std::uint32_t head_dim, std::uint32_t rotated, RopeLayout layout) {
  ModelSpec spec;
  spec.head_dim = head_dim;
  spec.kv_heads = 3;
  spec.layers.resize(2);
  spec.layers[1].rope = 0;
  RopeSpec rope{.layout = layout, .dimensions = rotated};
  for (std::uint32_t i = 0; i < rotated / 2; ++i) {
    rope.inverse_frequency.push_back(std::pow(10000.0, -2.0 * i / rotated));
  }
  spec.ropes.push_back(rope);
  return spec;
}

std::vector<std::uint16_t> random_values(const ModelSpec& spec, ElementType element, std::mt19937& random) {
  std::vector<std::uint16_t> values(std::size_t{2} * spec.kv_width() * kBlockTokens);
  std::uniform_real_distribution<float> uniform(-8, 8);
  for (std::uint16_t& value : values) {
    const float x = uniform(random) * (random() % 50 == 0 ? 8000.0f : 1.0f);  // some that leave f16's range
    value = element == ElementType::kHalf ? f32_to_f16(x) : f32_to_bf16(x);
  }
  return values;
}

// Between the layouts of a block's keys: [kv head][token][dim] here, [kv head][dim][token] on the CPU.
std::vector<std::uint16_t> transposed(const ModelSpec& spec, const std::vector<std::uint16_t>& values,
                                      bool to_cpu) {
  std::vector<std::uint16_t> result = values;
  for (std::uint32_t head = 0; head < spec.kv_heads; ++head) {
    for (std::uint32_t token = 0; token < kBlockTokens; ++token) {
      for (std::uint32_t dim = 0; dim < spec.head_dim; ++dim) {
        const std::size_t base = std::size_t{head} * spec.head_dim * kBlockTokens;
        const std::size_t here = base + token * spec.head_dim + dim,
                          there = base + dim * kBlockTokens + token;
        result[to_cpu ? there : here] = values[to_cpu ? here : there];
      }
    }
  }
  return result;
}

TEST(CudaKeyRotationTest, HalfKeysAreTheCpusBitForBit) {
  std::mt19937 random(5);
  for (const RopeLayout layout : {RopeLayout::kHalves, RopeLayout::kAdjacent}) {
    for (const std::uint32_t rotated : {32u, 12u, 2u}) {
      for (const std::int32_t delta : {1, -1, 37, -4000}) {
        const ModelSpec spec = make_spec(32, rotated, layout);
        Slice slice{random_values(spec, ElementType::kHalf, random)};
        Slice want{transposed(spec, slice.values, true)};
        cpu::KeyRotation(spec, cpu::plain_kernels(),
                         cpu::StateLayout(StateType::kF16, spec.kv_heads, spec.head_dim))
            .rotate(1, delta, want.bytes());
        rotate_block_keys(spec, ElementType::kHalf, 1, delta, slice.bytes());
        EXPECT_EQ(slice.values, transposed(spec, want.values, false)) << rotated << " by " << delta;
      }
    }
  }
}

TEST(CudaKeyRotationTest, BrainFloatKeysTurn) {
  std::mt19937 random(6);
  for (const RopeLayout layout : {RopeLayout::kHalves, RopeLayout::kAdjacent}) {
    const std::uint32_t rotated = 24, pairs = rotated / 2;
    const ModelSpec spec = make_spec(40, rotated, layout);
    Slice slice{random_values(spec, ElementType::kBFloat16, random)};
    const std::vector<std::uint16_t> before = slice.values;
    const std::int32_t delta = -51;
    rotate_block_keys(spec, ElementType::kBFloat16, 1, delta, slice.bytes());
    for (std::size_t at = 0; at < before.size(); ++at) {
      const std::size_t dim = at % spec.head_dim;
      if (at >= before.size() / 2 || dim >= rotated) {
        ASSERT_EQ(slice.values[at], before[at]) << "not a rotated dimension of a key";
        continue;
      }
      const bool halves = layout == RopeLayout::kHalves, second = halves ? dim >= pairs : dim % 2 == 1;
      const std::size_t partner = halves ? (second ? at - pairs : at + pairs) : at ^ 1u;
      const double angle = delta * spec.ropes[0].inverse_frequency[halves ? dim % pairs : dim / 2];
      const double x = bf16_to_f32(before[at]), y = bf16_to_f32(before[partner]);
      const double want = x * std::cos(angle) + (second ? y : -y) * std::sin(angle);
      EXPECT_NEAR(bf16_to_f32(slice.values[at]), want,
                  std::fabs(want) * 0x1p-8 + (std::fabs(x) + std::fabs(y)) * 1e-6);
    }
  }
}

TEST(CudaKeyRotationTest, WhatFollowsTheFirstTokensIsCleared) {
  std::mt19937 random(7);
  const ModelSpec spec = make_spec(40, 24, RopeLayout::kHalves);
  for (const std::uint32_t first : {0u, 1u, 17u, kBlockTokens}) {
    Slice slice{random_values(spec, ElementType::kHalf, random)};
    std::vector<std::uint16_t> want = slice.values;
    for (std::size_t at = 0; at < want.size(); ++at)  // [keys, values][kv head][token][head_dim]
      if (at / spec.head_dim % kBlockTokens >= first) want[at] = 0;
    clear_block_tokens(spec, 1, first, slice.bytes());
    EXPECT_EQ(slice.values, want) << first;
  }
}

TEST(CudaKeyRotationTest, LayersWithoutRotationAndNoDistanceChangeNothing) {
  std::mt19937 random(7);
  const ModelSpec spec = make_spec(32, 32, RopeLayout::kHalves);
  Slice slice{random_values(spec, ElementType::kHalf, random)};
  const std::vector<std::uint16_t> before = slice.values;
  rotate_block_keys(spec, ElementType::kHalf, 0, 9, slice.bytes());
  rotate_block_keys(spec, ElementType::kHalf, 1, 0, slice.bytes());
  EXPECT_EQ(slice.values, before);
}

}  // namespace
}  // namespace loci::cuda
