// Attention over one partial and the merging of partials: against float64, bit for bit on every
// instruction set and with any number of queries, untouched by what unseen slots hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

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
  std::vector<float> queries = std::vector<float>(kMaxTileRows * kAttentionStride);
  std::vector<float> scores = std::vector<float>(kMaxTileRows * kAttentionStride);
  std::vector<float> maximum = std::vector<float>(kMaxTileRows), sum = std::vector<float>(kMaxTileRows);
  std::vector<float> out = std::vector<float>(kMaxTileRows * kAttentionStride);
  std::vector<const std::uint16_t*> keys, values;
  AttentionPartial description;

  Partial(const Context& context, std::uint32_t first_token, const std::vector<float>& q,
          const std::vector<std::uint32_t>& visible) {
    const auto rows = static_cast<std::uint32_t>(visible.size());
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::copy_n(q.data() + row * context.head_dim, context.head_dim,
                  queries.data() + row * kAttentionStride);
    }
    for (std::size_t block = first_token / 32; block < context.keys.size(); ++block) {
      keys.push_back(context.keys[block].data());
      values.push_back(context.values[block].data());
    }
    description = {keys.data(),    values.data(), context.head_dim, rows,       queries.data(),
                   visible.data(), scores.data(), maximum.data(),   sum.data(), out.data()};
  }
};

// [rows][head_dim] of softmax2(q k) v over the whole context, partial by partial as a backend does it.
std::vector<float> attend(const KernelTable& kernels, const Context& context, const std::vector<float>& q,
                          const std::vector<std::uint32_t>& seen, std::uint32_t tile) {
  const auto rows = static_cast<std::uint32_t>(seen.size());
  std::vector<float> out(rows * context.head_dim);
  for (std::uint32_t first = 0; first < rows; first += tile) {
    const std::uint32_t count = std::min(tile, rows - first);
    const std::vector<float> part(q.begin() + first * context.head_dim,
                                  q.begin() + (first + count) * context.head_dim);
    std::unique_ptr<Partial> state;
    std::vector<std::uint32_t> state_visible;
    for (std::uint32_t begin = 0; begin < seen[first + count - 1]; begin += kPartialTokens) {
      std::vector<std::uint32_t> visible;
      for (std::uint32_t row = first; row < first + count; ++row) {
        visible.push_back(seen[row] <= begin ? 0 : std::min(seen[row] - begin, kPartialTokens));
      }
      auto partial = std::make_unique<Partial>(context, begin, part, visible);
      kernels.attention_partial(partial->description);
      if (begin == 0) {
        state = std::move(partial);
        continue;
      }
      for (std::uint32_t row = 0; row < count; ++row) {
        if (visible[row] > 0) kernels.attention_merge(partial->description, state->description, row);
      }
    }
    for (std::uint32_t row = 0; row < count; ++row) {
      kernels.attention_finish(state->description, row, out.data() + (first + row) * context.head_dim);
    }
  }
  return out;
}

void check(const Context& context, const std::vector<float>& q, const std::vector<std::uint32_t>& seen,
           const std::vector<float>& found) {
  for (std::size_t row = 0; row < seen.size(); ++row) {
    std::vector<double> weights(seen[row]);
    double largest = -1e300, sum = 0;
    for (std::uint32_t t = 0; t < seen[row]; ++t) {
      for (std::uint32_t d = 0; d < context.head_dim; ++d)
        weights[t] += q[row * context.head_dim + d] * context.key(t, d);
      largest = std::max(largest, weights[t]);
    }
    for (double& weight : weights) sum += weight = std::exp2(weight - largest);
    for (std::uint32_t d = 0; d < context.head_dim; ++d) {
      double expected = 0, magnitude = 0;
      for (std::uint32_t t = 0; t < seen[row]; ++t) {
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
