// SPDX-License-Identifier: Apache-2.0
// Attention's kernels against a plain float64 one, and their determinism.
#include "loci/compute/cuda/attention/attention.h"

#include <gtest/gtest.h>

#include "loci/compute/cuda/attention/attention_testing.h"

namespace loci::cuda {
namespace {

using attention_testing::Case;
using attention_testing::World;

class CudaAttentionTest : public attention_testing::AttentionTest {};

TEST_F(CudaAttentionTest, DecodesEveryHeadSizeAndType) {
  for (const ElementType type : {ElementType::kHalf, ElementType::kBFloat16}) {
    for (const std::uint32_t head_dim : {64u, 80u, 96u, 128u, 256u, 16u, 112u, 192u}) {
      Case c;
      c.heads = 4;
      c.kv_heads = 2;
      c.head_dim = head_dim;
      c.type = type;
      c.spans = {{.length = 1}, {.length = 65}, {.length = 300}};
      c.runs = {{0, 1, 0}, {1, 1, 64}, {2, 1, 299}};
      check(c, head_dim);
    }
  }
}

TEST_F(CudaAttentionTest, PromptsOfEveryHeadSizeAndType) {
  for (const ElementType type : {ElementType::kHalf, ElementType::kBFloat16}) {
    for (const std::uint32_t head_dim : {64u, 80u, 96u, 128u, 256u, 16u, 112u, 192u}) {
      Case c;
      c.heads = 4;
      c.kv_heads = 1;
      c.head_dim = head_dim;
      c.type = type;
      c.spans = {{.length = 45}, {.length = 170}};
      c.runs = {{0, 45, 0}, {1, 21, 149}};
      check(c, head_dim);
      c.warpgroups = false;
      check(c, head_dim);
    }
  }
}

// attend_warpgroups has steps of 128 positions from a multiple of 64 on, and halves of 64 pairs.
TEST_F(CudaAttentionTest, PromptsWhoseEndsAreRagged) {
  for (const ElementType type : {ElementType::kHalf, ElementType::kBFloat16}) {
    for (const std::uint32_t head_dim : {64u, 128u}) {
      for (const std::uint32_t rows : {17u, 63u, 64u, 65u, 127u, 128u, 129u}) {
        for (const std::uint32_t before : {0u, 1u, 63u, 64u, 100u, 128u, 191u}) {
          if (simulated() &&
              (rows + before + head_dim / 64 + (type == ElementType::kHalf ? 1 : 0)) % 3 != 0) {
            continue;
          }
          Case c;
          c.heads = 1;
          c.kv_heads = 1;
          c.head_dim = head_dim;
          c.type = type;
          c.spans = {{.length = before + rows}};
          c.runs = {{0, rows, before}};
          check(c, rows + before);
          ASSERT_FALSE(HasFailure()) << rows << " rows behind " << before << ", head size " << head_dim;
        }
      }
    }
  }
}

TEST_F(CudaAttentionTest, PromptsOfEveryRatioThroughWindows) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    for (const std::uint32_t ratio : {1u, 3u, 4u, 8u}) {
      for (const std::uint32_t window : {1u, 50u, 130u, 300u}) {
        Case c;
        c.heads = ratio;
        c.kv_heads = 1;
        c.head_dim = head_dim;
        c.window = window;
        c.sinks = ratio == 4;
        c.softcap = ratio == 8 ? 20.0f : 0.0f;
        c.spans = {{.length = 500}, {.length = 70}};
        c.runs = {{0, 45, 455}, {1, 70, 0}};
        check(c, window);
        ASSERT_FALSE(HasFailure()) << "ratio " << ratio << " window " << window << " head size " << head_dim;
      }
    }
  }
}

TEST_F(CudaAttentionTest, PromptsAreSplit) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    for (const std::uint32_t multiprocessors : {8u, 12u, 30u}) {
      Case c;
      c.heads = 8;
      c.kv_heads = 2;
      c.head_dim = head_dim;
      c.sinks = true;
      c.plan_multiprocessors = multiprocessors;
      c.spans = {{.length = simulated() ? 1100u : 5000u}};
      c.runs = {{0, 30, c.spans[0].length - 30}};
      EXPECT_GT(check(c, multiprocessors), 0u);
    }
  }
}

// On Hopper prompts and decodes of a batch are computed by two kernels.
TEST_F(CudaAttentionTest, PromptsAmongDecodes) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    for (const std::uint32_t kv_heads : {1u, 2u, 3u}) {
      Case c;
      c.heads = 4 * kv_heads;
      c.kv_heads = kv_heads;
      c.head_dim = head_dim;
      c.type = kv_heads == 2 ? ElementType::kHalf : ElementType::kBFloat16;
      c.plan_multiprocessors = 4;
      for (std::uint32_t i = 0; i < 7; ++i) {
        const std::uint32_t length = 40 + 50 * i, rows = i % 3 == 1 ? 35 : 1;
        c.spans.push_back({.length = length});
        c.runs.push_back({i, rows, length - rows});
      }
      World world(*this, c, kv_heads);
      const attention_testing::Outcome outcome = world.attend(c);
      const bool apart = attention_has_warpgroups(device().properties(), head_dim, false);
      EXPECT_EQ(outcome.counts.warpgroup_tasks > 0, apart);
      EXPECT_GT(outcome.counts.tasks, 0u);
      world.expect_near(c, outcome);
    }
  }
}

TEST_F(CudaAttentionTest, EveryRatioOfHeads) {
  for (std::uint32_t ratio = 1; ratio <= 17; ++ratio) {
    Case c;
    c.heads = 2 * ratio;
    c.kv_heads = 2;
    c.head_dim = 64;
    c.spans = {{.length = 90}, {.length = 40}};
    c.runs = {{0, 1, 89}, {1, 7, 33}};
    check(c, ratio);
  }
}

TEST_F(CudaAttentionTest, WindowsSoftcapsAndSinks) {
  for (const std::uint32_t window : {0u, 1u, 33u, 200u}) {
    for (const float softcap : {0.0f, 15.0f}) {
      for (const bool sinks : {false, true}) {
        Case c;
        c.heads = 6;
        c.kv_heads = 2;
        c.head_dim = 64;
        c.window = window;
        c.softcap = softcap;
        c.sinks = sinks;
        c.query_scale = 3;
        c.spans = {{.length = 600}, {.length = 300}, {.length = 20}};
        c.runs = {{0, 1, 599}, {1, 50, 250}, {2, 20, 0}};
        c.plan_multiprocessors = 8;
        check(c, window);
        c.deterministic = true;
        check(c, window + 1);
      }
    }
  }
}

TEST_F(CudaAttentionTest, SpansWithHoles) {
  // Two runs of one span: what lies between them was there before.
  Case c;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 128;
  c.spans = {{.length = 400}};
  c.runs = {{0, 40, 64}, {0, 9, 391}};
  check(c, 1);
}

TEST_F(CudaAttentionTest, LongContextsAreSplit) {
  Case c;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 128;
  c.plan_multiprocessors = simulated() ? 16 : 132;
  const std::uint32_t length = simulated() ? 1600 : 40000;
  c.spans = {{.length = length}};
  c.runs = {{0, 1, length - 1}};
  EXPECT_GT(check(c, 1), 0u);
  c.runs = {{0, 12, length - 12}};
  EXPECT_GT(check(c, 2), 0u);
  c.deterministic = true;
  EXPECT_GT(check(c, 3), 0u);
}

TEST_F(CudaAttentionTest, AnyNumberOfStages) {
  for (std::uint32_t stages = 1; stages <= 4; ++stages) {
    Case c;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = 64;
    c.stages_max = stages;
    c.spans = {{.length = 500}, {.length = 330}};
    c.runs = {{0, 1, 499}, {1, 60, 270}};
    check(c, stages);
  }
}

TEST_F(CudaAttentionTest, RandomBatches) {
  std::mt19937 random(11);
  const auto below = [&](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  const int trials = simulated() ? 16 : 30;  // the float64 one takes about a second each
  for (int trial = 0; trial < trials; ++trial) {
    Case c;
    c.kv_heads = 1 + below(2);
    c.heads = c.kv_heads * (1 + below(9));
    c.head_dim = 16 * (1 + below(16));
    c.type = below(2) == 0 ? ElementType::kHalf : ElementType::kBFloat16;
    c.window = below(2) == 0 ? 0 : 1 + below(600);
    c.softcap = below(4) == 0 ? 30.0f : 0.0f;
    c.sinks = below(3) == 0;
    c.deterministic = below(2) == 0;
    c.warpgroups = below(4) != 0;
    if (c.warpgroups && below(2) == 0) c.head_dim = below(2) == 0 ? 64 : 128;
    c.plan_multiprocessors = 1 + below(20);
    c.stages_max = 1 + below(4);
    c.query_scale = below(2) == 0 ? 1.0f : 4.0f;
    for (std::uint32_t s = 0, count = 1 + below(4); s < count; ++s) {
      const std::uint32_t length = 1 + below(simulated() ? 900 : 2000);
      const std::uint32_t rows = below(2) == 0 ? 1 : 1 + below(std::min(length, simulated() ? 40u : 120u));
      c.spans.push_back({.length = length});
      c.runs.push_back({s, rows, length - rows});
    }
    check(c, static_cast<std::uint64_t>(trial));
    ASSERT_FALSE(HasFailure()) << "trial " << trial << " head_dim " << c.head_dim << " heads " << c.heads;
  }
}

// Deterministic mode: a row's bits are the same in a prompt tile, in a decode tile, among whatever rows,
// split or not.
TEST_F(CudaAttentionTest, DeterministicBitsKnowNoBatch) {
  for (const std::uint32_t window : {0u, 700u}) {
    for (const std::uint32_t head_dim : {64u, 128u, 256u}) {
      if (simulated() && window != 0 && head_dim != 64) continue;
      Case c;
      c.heads = 4;
      c.kv_heads = 1;
      c.head_dim = head_dim;
      c.window = window;
      c.sinks = head_dim == 64;
      c.type = head_dim == 128 ? ElementType::kHalf : ElementType::kBFloat16;
      c.deterministic = true;
      c.plan_multiprocessors = 1;
      c.spans = {{.length = 1100}, {.length = 200}};
      c.runs = {{0, 50, 1050}};
      World world(*this, c, 5);
      const auto together = world.attend(c);
      ASSERT_EQ(together.counts.merges, 0u);
      const auto expect_same = [&](const Case& other, const char* what) {
        const auto result = world.attend(other);
        std::uint32_t row = 0;
        for (const attention_testing::Run& run : other.runs) {
          for (std::uint32_t i = 0; i < run.rows; ++i, ++row) {
            if (run.span != 0) continue;
            ASSERT_EQ(world.row(result, row), world.row(together, run.position + i - 1050))
                << what << ", position " << run.position + i << ", head size " << head_dim;
          }
        }
      };
      Case split = c;
      split.plan_multiprocessors = 64;
      ASSERT_GT(world.attend(split).counts.merges, 0u);
      expect_same(split, "split contexts");
      Case chunks = c;
      chunks.runs = {{0, 1, 1050}, {0, 3, 1051}, {1, 60, 140}, {0, 20, 1060}, {0, 5, 1080}};
      expect_same(chunks, "chunks");
      chunks.plan_multiprocessors = 64;
      expect_same(chunks, "split chunks");
      Case decodes = c;
      decodes.runs.clear();
      for (std::uint32_t position = 1050; position < 1100; position += 11)
        decodes.runs.push_back({0, 1, position});
      expect_same(decodes, "decodes");
      decodes.plan_multiprocessors = 64;
      expect_same(decodes, "split decodes");
    }
  }
}

TEST_F(CudaAttentionTest, TheSamePlanGivesTheSameBits) {
  for (const bool warpgroups : {true, false}) {
    Case c;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = 128;
    c.warpgroups = warpgroups;
    c.plan_multiprocessors = 8;
    c.spans = {{.length = 900}, {.length = 100}};
    c.runs = {{0, 1, 899}, {1, 30, 70}};
    World world(*this, c, 3);
    // The same memory is launched again: what a launch counts, it leaves at zero.
    const auto pass = world.prepare(c);
    attend(pass.arguments, stream());
    const auto first = world.result(pass).bits;
    stream().fill(pass.output.data(), 0xff, pass.output.size());
    attend(pass.arguments, stream());
    EXPECT_EQ(world.result(pass).bits, first);
    EXPECT_EQ(world.attend(c).bits, first);
  }
}

// A graph is launched again with another plan: fewer tasks, longer contexts.
TEST_F(CudaAttentionTest, AGraphServesOtherBatches) {
  Case c;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 64;
  c.plan_multiprocessors = 8;
  c.spans = {{.length = 40}, {.length = 50}, {.length = 1500}};
  c.runs = {{0, 1, 39}, {1, 1, 49}, {2, 1, 70}};
  World world(*this, c, 9);
  auto pass = world.prepare(c, 4);
  ASSERT_TRUE(stream().begin_capture());
  attend(pass.arguments, stream());
  const Graph graph = stream().end_capture();
  ASSERT_TRUE(graph.present());
  stream().launch(graph);
  world.expect_near(c, world.result(pass));
  Case other = c;
  other.runs = {{2, 1, 1499}};
  world.replace(pass, other);
  stream().launch(graph);
  world.expect_near(other, world.result(pass));
}

}  // namespace
}  // namespace loci::cuda
