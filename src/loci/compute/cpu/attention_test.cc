// SPDX-License-Identifier: Apache-2.0
// Attention over one partial and the merging of partials: against float64, bit for bit on every
// instruction set and with any number of queries, untouched by what unseen slots hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "loci/base/rounds_testing.h"
#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

// One kv head's blocks, scattered in memory.
struct Context {
  StateType type;
  std::uint32_t head_dim;
  StateLayout layout;
  std::vector<Buffer> memory;  // [block]
  std::vector<HeadState> blocks;

  Context(StateType state, std::uint32_t tokens, std::uint32_t dim, Random& random)
      : type(state), head_dim(dim), layout(state, 1, dim) {
    const StateKernels& kernels = layout.kernels(plain_kernels());
    for (std::uint32_t token = 0; token < tokens; ++token) {
      if (token % 32 == 0) {
        memory.emplace_back().reserve(layout.slice_bytes(), "a test");
        blocks.push_back(layout.head(reinterpret_cast<std::uint8_t*>(memory.back().data()), 0));
      }
      for (const auto store : {kernels.store_key, kernels.store_value}) {
        // Tokens' scales differ.
        const float deviation = type == StateType::kQ8 && random.below(4) == 0 ? 3.0f : 1.0f;
        std::vector<float> x = normal_values(random, dim, deviation);
        x.resize(dim + 16, std::nanf(""));
        store(x.data(), dim, blocks.back(), token % 32);
      }
    }
  }
  float key(std::uint32_t token, std::uint32_t dim) const {
    return stored_key(type, blocks[token / 32], head_dim, token % 32, dim);
  }
  float value(std::uint32_t token, std::uint32_t dim) const {
    return stored_value(type, blocks[token / 32], head_dim, token % 32, dim);
  }
  // 2^e of a q8 value.
  double value_scale(std::uint32_t token, std::uint32_t dim) const {
    const std::uint32_t at = dim / q8_group_size(head_dim) * 32 + token % 32;
    return std::ldexp(1.0, blocks[token / 32].value_scales[at] - 127);
  }
};

// As many queries' tile as q8 takes, from rows `kAttentionStride` apart.
std::vector<std::uint8_t> query_tile(const KernelTable& kernels, std::vector<float> queries,
                                     std::uint32_t rows) {
  const std::uint32_t steps = kMaxHeadDim / kQuantBlock;
  std::vector<std::uint8_t> tile(steps * rows * kTileBlockBytes);
  for (std::uint32_t row = 0; row < rows; ++row)
    kernels.quantize(queries.data() + row * kAttentionStride, steps, tile.data(), rows, row);
  return tile;
}

// What a q8 score takes a query for.
std::vector<float> rounded_query(const std::vector<float>& q) {
  std::vector<float> padded(kAttentionStride), out(q.size());
  std::copy(q.begin(), q.end(), padded.begin());
  const std::vector<std::uint8_t> tile = query_tile(plain_kernels(), padded, 1);
  for (std::size_t i = 0; i < q.size(); ++i) {
    const std::uint8_t* block = tile.data() + i / 32 * kTileBlockBytes;
    float scale = 0;
    std::memcpy(&scale, block + 32, 4);
    out[i] = scale * static_cast<std::int8_t>(block[i % 32]);
  }
  return out;
}

struct Partial {
  std::vector<float> queries = std::vector<float>(kMaxAttentionRows * kAttentionStride);
  std::vector<float> scores = std::vector<float>(kMaxAttentionRows * kAttentionStride);
  std::vector<float> maximum = std::vector<float>(kLanes), sum = std::vector<float>(kLanes);
  std::vector<float> out = std::vector<float>(kMaxAttentionRows * kAttentionStride);
  std::vector<HeadState> blocks;
  std::vector<std::uint8_t> tile;
  std::vector<float> wide;
  AttentionPartial description;

  Partial(const KernelTable& kernels, const Context& context, std::uint32_t first_token,
          const std::vector<float>& q, const std::vector<std::uint32_t>& hidden,
          const std::vector<std::uint32_t>& visible, float softcap) {
    const auto rows = static_cast<std::uint32_t>(visible.size());
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::copy_n(q.data() + row * context.head_dim, context.head_dim,
                  queries.data() + row * kAttentionStride);
    }
    for (std::size_t block = first_token / 32; block < context.blocks.size(); ++block) {
      const bool seen = (block + 1) * 32 > first_token + hidden[0];  // by no query: nothing is there
      blocks.push_back(seen ? context.blocks[block] : HeadState{});
    }
    tile = query_tile(kernels, queries, rows);
    description = {blocks.data(), context.head_dim, rows,           queries.data(),
                   tile.data(),   hidden.data(),    visible.data(), softcap,
                   scores.data(), maximum.data(),   sum.data(),     out.data()};
  }
};

// The partial's seen blocks, widened; NaN in place of the others.
void widen(const KernelTable& kernels, Partial& partial) {
  const std::uint32_t head_dim = partial.description.head_dim, floats = head_dim * kTokensPerBlock;
  constexpr std::uint32_t kBlocks = kPartialTokens / kTokensPerBlock;
  partial.wide.assign(2 * kBlocks * floats, std::nanf(""));
  const std::uint32_t rows = partial.description.rows;
  const std::uint32_t end = (partial.description.visible[rows - 1] + kTokensPerBlock - 1) / kTokensPerBlock;
  for (std::uint32_t block = partial.description.hidden[0] / kTokensPerBlock; block < end; ++block) {
    kernels.f16.widen(partial.blocks[block], head_dim, partial.wide.data() + block * floats,
                      partial.wide.data() + (kBlocks + block) * floats);
  }
  partial.blocks.assign(kBlocks, HeadState{});  // nothing else is read
  partial.description.blocks = partial.blocks.data();
  partial.description.wide = partial.wide.data();
  partial.description.fetched = 1;
}

// How a layer looks at its context.
struct View {
  std::uint32_t window = 0;
  float softcap = 0;
  const float* sinks = nullptr;  // [rows]
  bool widened = false;          // tiles of enough queries read widened state
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
    Partial state(kernels, context, 0, part, none, none, 0);
    const std::uint32_t first_partial = view.first(seen[first]) / kPartialTokens * kPartialTokens;
    for (std::uint32_t begin = first_partial; begin < seen[first + count - 1]; begin += kPartialTokens) {
      for (std::uint32_t row = 0; row < count; ++row) {
        const std::uint32_t end = seen[first + row], low = view.first(end);
        visible[row] = end <= begin ? 0 : std::min(end - begin, kPartialTokens);
        hidden[row] = low <= begin ? 0 : std::min(low - begin, visible[row]);
      }
      Partial partial(kernels, context, begin, part, hidden, visible, view.softcap);
      // Fetched into the cache, with no other effect.
      partial.description.next = context.blocks.data() + begin / 32;
      partial.description.next_blocks =
          std::min<std::uint32_t>(kPartialTokens / 32, context.blocks.size() - begin / 32);
      if (view.widened && count >= kernels.wide_attention_rows) widen(kernels, partial);
      context.layout.kernels(kernels).attention_partial(partial.description);
      kernels.attention_merge(partial.description, state.description);
    }
    for (std::uint32_t row = 0; row < count; ++row) {
      if (view.sinks != nullptr) kernels.attention_sink(state.description, row, view.sinks[first + row]);
      kernels.attention_finish(state.description, row, out.data() + (first + row) * context.head_dim);
    }
  }
  return out;
}

// The weights by token of one partial that begins at `begin`, as a q8 sum over one dimension takes them, and
// what a weight that was rounded to a neighbour changes of it.
double round_weights(const Context& context, std::uint32_t dim, std::uint32_t begin, std::uint32_t end,
                     std::vector<double>& weights) {
  double scores_largest = 0, largest = 0;
  for (std::uint32_t t = begin; t < end; ++t) scores_largest = std::max(scores_largest, weights[t]);
  for (std::uint32_t t = begin; t < end; ++t)
    largest = std::max(largest, weights[t] / scores_largest * context.value_scale(t, dim));
  double unit = std::ldexp(1.0, -60);
  while (largest >= 16383.5 * unit) unit *= 2;
  for (std::uint32_t t = begin; t < end; ++t) {
    const double scale = context.value_scale(t, dim);
    weights[t] = std::nearbyint(weights[t] / scores_largest * scale / unit) * unit / scale * scores_largest;
  }
  // Where the largest is next to where the unit changes, float32 may have taken the other one.
  const double place = largest / unit / 16383.5;
  const bool near_change = place > 1 - 1e-4 || place < 0.5 + 1e-4;
  return 127 * unit * scores_largest * (near_change ? 20 : 1);
}

void check(const Context& context, const std::vector<float>& queries, const std::vector<std::uint32_t>& seen,
           const std::vector<float>& found, const View& view = {}) {
  for (std::size_t row = 0; row < seen.size(); ++row) {
    const auto begin = queries.begin() + static_cast<std::ptrdiff_t>(row * context.head_dim);
    std::vector<float> q(begin, begin + context.head_dim);
    if (context.type == StateType::kQ8) q = rounded_query(q);
    const std::uint32_t first = view.first(seen[row]);
    std::vector<double> weights(seen[row]);
    double largest = view.sinks != nullptr ? view.sinks[row] : -1e300;
    for (std::uint32_t t = first; t < seen[row]; ++t) {
      for (std::uint32_t d = 0; d < context.head_dim; ++d) weights[t] += q[d] * context.key(t, d);
      if (view.softcap != 0) weights[t] = view.softcap * std::tanh(weights[t]);
      largest = std::max(largest, weights[t]);
    }
    double sum = view.sinks != nullptr ? std::exp2(view.sinks[row] - largest) : 0;
    for (std::uint32_t t = first; t < seen[row]; ++t) sum += weights[t] = std::exp2(weights[t] - largest);
    for (std::uint32_t d = 0; d < context.head_dim; ++d) {
      std::vector<double> rounded = weights;
      double unit = 0;
      for (std::uint32_t t = first; context.type == StateType::kQ8 && t < seen[row];) {
        const std::uint32_t end = std::min((t / kPartialTokens + 1) * kPartialTokens, seen[row]);
        unit += round_weights(context, d, t, end, rounded);
        t = end;
      }
      double expected = 0, magnitude = 0;
      for (std::uint32_t t = first; t < seen[row]; ++t) {
        expected += rounded[t] / sum * context.value(t, d);
        magnitude += weights[t] / sum * std::abs(context.value(t, d));
      }
      // Scores are chains of head_dim roundings. A few weights may lie so near to the middle of two numbers
      // that float32 rounds them to the other one.
      const double relative = std::max(2e-5, 1.9e-7 * context.head_dim);
      ASSERT_NEAR(found[row * context.head_dim + d], expected, relative * magnitude + 8 * unit / sum)
          << row << " " << d;
    }
  }
}

class AttentionTest : public testing::TestWithParam<std::tuple<StateType, std::uint32_t>> {};

TEST_P(AttentionTest, IsTheSameEverywhere) {
  const auto [type, head_dim] = GetParam();
  Random random(head_dim);
  Context context(type, 600, head_dim, random);
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
  const auto [type, head_dim] = GetParam();
  Random random(head_dim + 1);
  Context context(type, 600, head_dim, random);
  const std::vector<float> sinks = normal_values(random, 12, 3);
  std::vector<std::uint32_t> windows = {1, 2, 33, 300};
  if (!kSlowed) windows.insert(windows.end(), {5, 256, 1000});
  for (const std::uint32_t window : windows) {
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

class WidenedAttentionTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(WidenedAttentionTest, IsTheSameAsOverBlocks) {
  const std::uint32_t head_dim = GetParam();
  Random random(head_dim + 2);
  Context context(StateType::kF16, 600, head_dim, random);
  for (const std::uint32_t window : {0u, 33u, 300u}) {
    for (const std::uint32_t position : {0u, 254u, 300u, 580u}) {
      std::vector<std::uint32_t> seen;
      for (std::uint32_t row = 0; row < 12; ++row) seen.push_back(position + row + 1);
      const std::vector<float> q = normal_values(random, 12 * head_dim, 0.5f);
      const std::vector<float> expected = attend(plain_kernels(), context, q, seen, 1, {.window = window});
      for (const InstructionSet set : available_instruction_sets()) {
        const KernelTable& kernels = kernels_of(set);
        for (std::uint32_t tile = kernels.wide_attention_rows; tile <= kernels.attention_rows; ++tile) {
          const View view{.window = window, .widened = true};
          ASSERT_TRUE(same_bits(expected, attend(kernels, context, q, seen, tile, view)))
              << instruction_set_name(set) << " window " << window << " position " << position << " tile "
              << tile;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, WidenedAttentionTest, testing::Values(8, 40, 64, 128));

TEST_P(AttentionTest, UnseenSlotsAreWithoutEffect) {
  const auto [type, head_dim] = GetParam();
  Random random(head_dim);
  Context context(type, 64, head_dim, random);
  const std::vector<std::uint32_t> seen = {40, 41, 42};
  const std::vector<float> q = normal_values(random, 3 * head_dim, 0.5f);
  const std::vector<float> expected = attend(plain_kernels(), context, q, seen, 1);
  // NaN and infinity, and scales that are none.
  const HeadState& last = context.blocks[1];
  for (std::uint32_t t = 42 - 32; t < 32; ++t) {
    for (std::uint32_t d = 0; d < head_dim; ++d) {
      if (type == StateType::kF16) {
        reinterpret_cast<std::uint16_t*>(last.keys)[d * 32 + t] = 0x7e00;
        reinterpret_cast<std::uint16_t*>(last.values)[t * head_dim + d] = d % 2 ? 0x7e00 : 0x7c00;
      } else {
        last.keys[t / 16 * 16 * head_dim + d / 4 * 64 + t % 16 * 4 + d % 4] = 255;
        last.values[t / 4 * 4 * head_dim + d * 4 + t % 4] = 127;
        const std::uint32_t at = d / q8_group_size(head_dim) * 32 + t;
        last.key_scales[at] = 255;
        last.value_scales[at] = static_cast<std::uint8_t>(222 + t % 4 * 11);
      }
    }
  }
  for (const InstructionSet set : available_instruction_sets()) {
    EXPECT_TRUE(same_bits(expected, attend(kernels_of(set), context, q, seen, 3)))
        << instruction_set_name(set);
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndHeadDims, AttentionTest,
                         testing::Combine(testing::Values(StateType::kF16, StateType::kQ8),
                                          testing::Values(8, 16, 24, 40, 64, 80, 96, 128, 256)),
                         [](const auto& tested) {
                           return std::string(state_type_name(std::get<0>(tested.param))) + "_" +
                                  std::to_string(std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace loci::cpu
