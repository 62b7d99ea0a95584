// SPDX-License-Identifier: Apache-2.0
// How attention is divided among threads: the bits do not depend on it, and its memory has a bound.
#include "loci/compute/cpu/attention_phase.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

// Decodes and short prompts behind contexts in one layer.
struct DividedAttention {
  static constexpr std::uint32_t kSlots = 40;
  AttentionShape shape;
  BlockStorage blocks;
  Pass pass;

  DividedAttention(std::uint32_t kv_heads, std::uint32_t head_dim, StateType type = StateType::kF16,
                   std::uint32_t tile = plain_kernels().attention_rows)
      : shape{kv_heads * 4, kv_heads, head_dim, tile, {0}},
        blocks({{.layers = {0}}}, StateLayout(type, kv_heads, head_dim)) {
    EXPECT_TRUE(blocks.allocate(0, kSlots).ok());
  }
  void add(std::uint32_t position, std::uint32_t tokens) { add(position, tokens, position); }
  // Of a sequence: its blocks are those of any other span of the same one.
  void add(std::uint32_t position, std::uint32_t tokens, std::uint32_t sequence) {
    Span span{.tokens = std::vector<TokenId>(tokens), .position = position, .layers = {0, 1}};
    std::vector<SlotId> slots;
    for (std::uint32_t i = 0; i * kBlockTokens < position + tokens; ++i)
      slots.emplace_back((i * 7 + sequence) % kSlots);
    span.tables = {BlockTable{slots}};
    pass.spans.push_back(std::move(span));
  }
  PassPlan plan(std::uint32_t threads) const {
    PassPlan plan;
    plan.make(pass, 1, blocks, shape, threads);
    return plan;
  }
  void fill(std::uint64_t seed) {
    Random random(seed);
    const StateKernels& kernels = blocks.layout().kernels(plain_kernels());
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const HeadState state = blocks.head(SlotId(slot), 0, head);
        for (std::uint32_t token = 0; token < kBlockTokens; ++token) {
          for (const auto store : {kernels.store_key, kernels.store_value}) {
            std::vector<float> x = normal_values(random, shape.head_dim);
            x.resize(shape.head_dim + 16);
            store(x.data(), shape.head_dim, state, token);
          }
        }
      }
    }
  }
  // What `threads` threads compute. `split`: whether they divide contexts.
  std::vector<float> run(std::uint32_t threads, bool& split) const {
    // (The thread sanitizer does not look at plain ones.)
    return run(threads, split, available_instruction_sets().back(), 0);
  }
  std::vector<float> run(std::uint32_t threads, bool& split, InstructionSet set,
                         std::uint32_t window_index) const {
    ThreadPool pool(threads);
    const PassPlan plan = this->plan(threads);
    split = plan.shares(window_index).split;
    const KernelTable& kernels = kernels_of(set);
    AttentionPhase phase(kernels, pool, blocks, shape.head_dim);
    phase.resize(plan);
    Random random(5);
    const std::uint32_t stride = shape.heads * shape.head_dim;
    std::vector<float> queries = normal_values(random, std::size_t{plan.rows()} * stride + kLanes, 0.3f);
    std::vector<float> out(queries.size());
    const std::vector<std::uint8_t> poisoned(pass.spans.size());
    const AttentionInput input{.pass = pass,
                               .plan = plan,
                               .poisoned = poisoned,
                               .window = shape.windows[window_index],
                               .window_index = window_index,
                               .rows = plan.rows(),
                               .queries = queries.data(),
                               .out = out.data(),
                               .stride = stride};
    pool.run([&](std::uint32_t thread) { phase.run(thread, input); });
    return out;
  }
};

TEST(AttentionPhaseTest, ItsBitsDoNotDependOnTheThreads) {
  for (const StateType type : {StateType::kF16, StateType::kQ8}) {
    for (const std::uint32_t head_dim : {8u, 40u, 64u}) {
      DividedAttention attention(2, head_dim, type);
      attention.fill(head_dim);
      attention.add(1200, 1);
      attention.add(255, 5);
      attention.add(3, 1);
      bool split = true;
      const std::vector<float> wanted = attention.run(1, split);
      EXPECT_FALSE(split);
      for (const std::uint32_t threads : {5u, 32u}) {
        const std::vector<float> got = attention.run(threads, split);
        EXPECT_TRUE(split) << threads;
        EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
            << threads << " threads, " << head_dim << " dimensions";
      }
    }
  }
}

// Tasks of a prompt are computed together, over widened state; tokens alone are not.
TEST(AttentionPhaseTest, APromptGivesTheBitsOfItsTokensAlone) {
  constexpr std::uint32_t kBefore = 245, kTokens = 20;
  for (const InstructionSet set : available_instruction_sets()) {
    for (const std::uint32_t head_dim : {40u, 128u, 136u}) {
      const std::uint32_t tile = kernels_of(set).attention_rows;
      DividedAttention prompt(2, head_dim, StateType::kF16, tile), alone(2, head_dim, StateType::kF16, tile);
      for (DividedAttention* each : {&prompt, &alone}) {
        each->shape.windows = {0, 5};  // some tasks see another partial than others do
        each->fill(head_dim);
      }
      prompt.add(kBefore, kTokens, 11);
      for (std::uint32_t i = 0; i < kTokens; ++i) alone.add(kBefore + i, 1, 11);
      for (const std::uint32_t window : {0u, 1u}) {
        bool split = false;
        const std::vector<float> wanted = alone.run(1, split, set, window);
        for (const std::uint32_t threads : {1u, 3u}) {
          const std::vector<float> got = prompt.run(threads, split, set, window);
          EXPECT_FALSE(split);
          EXPECT_TRUE(same_bits(got, wanted))
              << instruction_set_name(set) << ", " << head_dim << " dimensions, window " << window;
        }
      }
    }
  }
}

TEST(AttentionPhaseTest, TheResultsOfSplitContextsHaveABound) {
  DividedAttention decodes(8, 128);
  for (int i = 0; i < 15; ++i) decodes.add(131'071, 1);
  const PassPlan plan = decodes.plan(32);
  EXPECT_TRUE(plan.shares(0).split);
  EXPECT_LE(plan.split_bytes(), std::uint64_t{128} << 20) << "130 numbers for a query and 256 tokens";

  // Beyond the bound threads compute whole tasks.
  DividedAttention larger(8, 256);
  for (int i = 0; i < 15; ++i) larger.add(262'143, 1);
  EXPECT_FALSE(larger.plan(32).shares(0).split);
  EXPECT_EQ(larger.plan(32).split_bytes(), 0u);
}

}  // namespace
}  // namespace loci::cpu
