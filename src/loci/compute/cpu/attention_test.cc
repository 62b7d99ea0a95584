// SPDX-License-Identifier: Apache-2.0
// Attention over one partial and the merging of partials: against float64, bit for bit on every
// instruction set and with any number of queries, untouched by what unseen slots hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "loci/compute/cpu/test_values.h"

namespace loci::cpu {
namespace {

// One kv head's blocks, scattered in memory.
struct Context {
  std::uint32_t head_dim;
  std::vector<std::vector<std::uint16_t>> keys, values;  // [block]

  Context(std::uint32_t tokens, std::uint32_t dim, Random& random) : head_dim(dim) {
    for (std::uint32_t block = 0; block * 32 < tokens; ++block) {
      keys.emplace_back(dim * 32 + 16);
      values.emplace_back(dim * 32 + 16);
      for (std::uint32_t i = 0; i < dim * 32; ++i) {
        keys.back()[i] = f32_to_f16(normal_value(random));
        values.back()[i] = f32_to_f16(normal_value(random));
      }
    }
  }
  float key(std::uint32_t token, std::uint32_t dim) const {
    return f16_to_f32(keys[token / 32][dim * 32 + token % 32]);
  }
  float value(std::uint32_t token, std::uint32_t dim) const {
    return f16_to_f32(values[token / 32][token % 32 * head_dim + dim]);
  }
};

struct Partial {
  std::vector<float> queries = std::vector<float>(kMaxAttentionRows * kAttentionStride);
  std::vector<float> scores = std::vector<float>(kMaxAttentionRows * kAttentionStride);
  std::vector<float> maximum = std::vector<float>(kMaxAttentionRows),
                     sum = std::vector<float>(kMaxAttentionRows);
  std::vector<float> out = std::vector<float>(kMaxAttentionRows * kAttentionStride);
  std::vector<const std::uint16_t*> keys, values;
  AttentionPartial description;

  Partial(const Context& context, std::uint32_t first_token, const std::vector<float>& q,
          const std::vector<std::uint32_t>& hidden, const std::vector<std::uint32_t>& visible,
          float softcap) {
    const auto rows = static_cast<std::uint32_t>(visible.size());
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::copy_n(q.data() + row * context.head_dim, context.head_dim,
                  queries.data() + row * kAttentionStride);
    }
    for (std::size_t block = first_token / 32; block < context.keys.size(); ++block) {
      const bool seen = (block + 1) * 32 > first_token + hidden[0];  // by no query: nothing is there
      keys.push_back(seen ? context.keys[block].data() : nullptr);
      values.push_back(seen ? context.values[block].data() : nullptr);
    }
    description = {keys.data(),    values.data(),  context.head_dim, rows,
                   queries.data(), hidden.data(),  visible.data(),   softcap,
                   scores.data(),  maximum.data(), sum.data(),       out.data()};
  }
};

// How a layer looks at its context.
struct View {
  std::uint32_t window = 0;
  float softcap = 0;
  const float* sinks = nullptr;  // [rows]
  std::uint32_t first(std::uint32_t seen) const { return window == 0 || seen < window ? 0 : seen - window; }
};

// [rows][head_dim] of softmax2(q k) v over what is seen, partial by partial as a backend does it.
std::vector<float> attend(const KernelTable& kernels, const Context& context, const std::vector<float>& q,
                          const std::vector<std::uint32_t>& seen, std::uint32_t tile, const View& view = {}) {
  const auto rows = static_cast<std::uint32_t>(seen.size());
  std::vector<float> out(rows * context.head_dim);
  for (std::uint32_t first = 0; first < rows; first += tile) {
    const std::uint32_t count = std::min(tile, rows - first);
    const std::vector<float> part(q.begin() + first * context.head_dim,
                                  q.begin() + (first + count) * context.head_dim);
    const std::vector<std::uint32_t> none(count);
    std::vector<std::uint32_t> hidden(count), visible(count);
    Partial state(context, 0, part, none, none, 0);
    const std::uint32_t first_partial = view.first(seen[first]) / kPartialTokens * kPartialTokens;
    for (std::uint32_t begin = first_partial; begin < seen[first + count - 1]; begin += kPartialTokens) {
      for (std::uint32_t row = 0; row < count; ++row) {
        const std::uint32_t end = seen[first + row], low = view.first(end);
        visible[row] = end <= begin ? 0 : std::min(end - begin, kPartialTokens);
        hidden[row] = low <= begin ? 0 : std::min(low - begin, visible[row]);
      }
      const Partial partial(context, begin, part, hidden, visible, view.softcap);
      kernels.attention_partial(partial.description);
      for (std::uint32_t row = 0; row < count; ++row) {
        if (partial.sum[row] == 0) continue;
        if (state.sum[row] == 0) {
          state.maximum[row] = partial.maximum[row];
          state.sum[row] = partial.sum[row];
          std::copy_n(partial.out.data() + row * kAttentionStride, kAttentionStride,
                      state.out.data() + row * kAttentionStride);
        } else {
          kernels.attention_merge(partial.description, state.description, row);
        }
      }
    }
    for (std::uint32_t row = 0; row < count; ++row) {
      if (view.sinks != nullptr) kernels.attention_sink(state.description, row, view.sinks[first + row]);
      kernels.attention_finish(state.description, row, out.data() + (first + row) * context.head_dim);
    }
  }
  return out;
}

void check(const Context& context, const std::vector<float>& q, const std::vector<std::uint32_t>& seen,
           const std::vector<float>& found, const View& view = {}) {
  for (std::size_t row = 0; row < seen.size(); ++row) {
    const std::uint32_t first = view.first(seen[row]);
    std::vector<double> weights(seen[row]);
    double largest = view.sinks != nullptr ? view.sinks[row] : -1e300;
    for (std::uint32_t t = first; t < seen[row]; ++t) {
      for (std::uint32_t d = 0; d < context.head_dim; ++d)
        weights[t] += q[row * context.head_dim + d] * context.key(t, d);
      if (view.softcap != 0) weights[t] = view.softcap * std::tanh(weights[t]);
      largest = std::max(largest, weights[t]);
    }
    double sum = view.sinks != nullptr ? std::exp2(view.sinks[row] - largest) : 0;
    for (std::uint32_t t = first; t < seen[row]; ++t) sum += weights[t] = std::exp2(weights[t] - largest);
    for (std::uint32_t d = 0; d < context.head_dim; ++d) {
      double expected = 0, magnitude = 0;
      for (std::uint32_t t = first; t < seen[row]; ++t) {
        expected += weights[t] / sum * context.value(t, d);
        magnitude += weights[t] / sum * std::abs(context.value(t, d));
      }
      ASSERT_NEAR(found[row * context.head_dim + d], expected, 2e-5 * magnitude) << row << " " << d;
    }
  }
}

class AttentionTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(AttentionTest, IsTheSameEverywhere) {
  const std::uint32_t head_dim = GetParam();
  Random random(head_dim);
  Context context(600, head_dim, random);
  // Heads of neighbouring tokens, at beginnings, in the middle and across a partial's end.
  for (const std::uint32_t position : {0u, 30u, 254u, 300u, 511u, 580u}) {
    std::vector<std::uint32_t> seen;
    for (std::uint32_t row = 0; row < 12; ++row) seen.push_back(position + row / 3 + 1);
    const std::vector<float> q = normal_values(random, 12 * head_dim, 0.5f);
    const std::vector<float> expected = attend(plain_kernels(), context, q, seen, 1);
    check(context, q, seen, expected);
    for (const InstructionSet set : available_instruction_sets()) {
      const KernelTable& kernels = kernels_of(set);
      for (std::uint32_t tile = 1; tile <= kernels.attention_rows; ++tile) {
        ASSERT_TRUE(same_bits(expected, attend(kernels, context, q, seen, tile)))
            << instruction_set_name(set) << " position " << position << " tile " << tile;
      }
    }
  }
}

TEST_P(AttentionTest, WindowsSoftcapsAndSinks) {
  const std::uint32_t head_dim = GetParam();
  Random random(head_dim + 1);
  Context context(600, head_dim, random);
  const std::vector<float> sinks = normal_values(random, 12, 3);
  for (const std::uint32_t window : {1u, 2u, 5u, 33u, 256u, 300u, 1000u}) {
    for (const std::uint32_t position : {0u, 30u, 254u, 300u, 511u, 580u}) {
      const View view{window, window % 2 == 0 ? 8.0f : 0.0f, window % 3 == 0 ? sinks.data() : nullptr};
      std::vector<std::uint32_t> seen;
      for (std::uint32_t row = 0; row < 12; ++row) seen.push_back(position + row + 1);
      const std::vector<float> q = normal_values(random, 12 * head_dim, 0.5f);
      const std::vector<float> expected = attend(plain_kernels(), context, q, seen, 1, view);
      check(context, q, seen, expected, view);
      for (const InstructionSet set : available_instruction_sets()) {
        const KernelTable& kernels = kernels_of(set);
        for (std::uint32_t tile = 1; tile <= kernels.attention_rows; ++tile) {
          ASSERT_TRUE(same_bits(expected, attend(kernels, context, q, seen, tile, view)))
              << instruction_set_name(set) << " window " << window << " position " << position << " tile "
              << tile;
        }
      }
    }
  }
}

TEST_P(AttentionTest, UnseenSlotsAreWithoutEffect) {
  const std::uint32_t head_dim = GetParam();
  Random random(head_dim);
  Context context(64, head_dim, random);
  const std::vector<std::uint32_t> seen = {40, 41, 42};
  const std::vector<float> q = normal_values(random, 3 * head_dim, 0.5f);
  const std::vector<float> expected = attend(plain_kernels(), context, q, seen, 1);
  for (std::uint32_t t = 42; t < 64; ++t) {
    for (std::uint32_t d = 0; d < head_dim; ++d) {
      context.keys[1][d * 32 + t % 32] = 0x7e00;  // NaN
      context.values[1][t % 32 * head_dim + d] =
          static_cast<std::uint16_t>(d % 2 ? 0x7e00 : 0x7c00);  // infinity
    }
  }
  for (const InstructionSet set : available_instruction_sets()) {
    EXPECT_TRUE(same_bits(expected, attend(kernels_of(set), context, q, seen, 3)))
        << instruction_set_name(set);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, AttentionTest, testing::Values(8, 16, 24, 40, 64, 80, 96, 128, 256));

}  // namespace
}  // namespace loci::cpu
