// SPDX-License-Identifier: Apache-2.0
// Plans of attention: every row's context is read once, partials meet their merges, bounds hold, and work is
// even. Exhaustively on small worlds, and at random.
#include "loci/compute/cuda/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "loci/compute/cuda/attention/attention_layout.h"

namespace loci::cuda {
namespace {

std::uint32_t round_up(std::uint32_t value, std::uint32_t to) { return (value + to - 1) / to; }

struct Checked {
  const AttentionShape& shape;
  const std::vector<AttentionRun>& runs;
  const AttentionPlan& plan;

  std::uint32_t ratio() const { return shape.heads / shape.kv_heads; }
  std::uint32_t row_position(std::uint32_t run, std::uint32_t pair) const {
    return runs[run].position + pair / ratio();
  }
  std::uint32_t first_visible(std::uint32_t position) const {
    return shape.window == 0 || position < shape.window ? 0 : position - shape.window + 1;
  }
  std::uint32_t splits(const AttentionTask& task) const {
    return round_up(task.key_end, kAttentionSplitKeys) - task.key_begin / kAttentionSplitKeys;
  }
  // Units that a task of a split context writes.
  std::uint32_t partials(const AttentionTask& task) const { return shape.deterministic ? splits(task) : 1; }

  using Tile = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // run, first pair, key/value head

  void tiles(std::map<Tile, std::vector<AttentionTask>>& by_tile) const {
    for (const std::vector<AttentionTask>* list : {&plan.warpgroup_tasks, &plan.tasks}) {
      for (const AttentionTask& task : *list) {
        ASSERT_LT(task.run, runs.size());
        ASSERT_LT(task.kv_head, shape.kv_heads);
        by_tile[{task.run, task.first_pair, task.kv_head}].push_back(task);
      }
    }
    std::vector<std::vector<std::uint32_t>> covered(runs.size());
    for (std::uint32_t r = 0; r < runs.size(); ++r) covered[r].resize(shape.kv_heads);
    for (auto& [tile, tasks] : by_tile) {
      std::sort(tasks.begin(), tasks.end(),
                [](const auto& a, const auto& b) { return a.key_begin < b.key_begin; });
      const AttentionTask& first = tasks.front();
      const bool prompt = (first.flags & AttentionTask::kPromptTile) != 0;
      ASSERT_LE(first.pairs, prompt ? attention_prompt_pairs(shape.head_dim) : kAttentionDecodePairs);
      ASSERT_EQ(first.first_pair, covered[first.run][first.kv_head]);
      covered[first.run][first.kv_head] += first.pairs;
      const std::uint32_t last_pair = first.first_pair + first.pairs - 1;
      EXPECT_EQ(first.key_begin / kAttentionTileKeys,
                first_visible(row_position(first.run, first.first_pair)) / kAttentionTileKeys);
      EXPECT_EQ(tasks.back().key_end, row_position(first.run, last_pair) + 1);
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        ASSERT_EQ(tasks[i].pairs, first.pairs);
        ASSERT_LT(tasks[i].key_begin, tasks[i].key_end);
        ASSERT_EQ(tasks[i].key_begin % kAttentionTileKeys, 0u);
        ASSERT_EQ((tasks[i].flags & AttentionTask::kWhole) != 0, tasks.size() == 1);
        if (i == 0) continue;
        ASSERT_EQ(tasks[i].key_begin, tasks[i - 1].key_end);
        if (shape.deterministic) {
          ASSERT_EQ(tasks[i].key_begin % kAttentionSplitKeys, 0u);
        }
      }
    }
    for (std::uint32_t r = 0; r < runs.size(); ++r) {
      for (const std::uint32_t pairs : covered[r]) ASSERT_EQ(pairs, runs[r].rows * ratio());
    }
  }

  // Each list has the tiles of its kernel.
  void lists() const {
    const auto is_prompt = [](const AttentionTask& task) {
      return (task.flags & AttentionTask::kPromptTile) != 0;
    };
    const auto& [warpgroups, others] = std::tie(plan.warpgroup_tasks, plan.tasks);
    ASSERT_TRUE(std::all_of(warpgroups.begin(), warpgroups.end(), is_prompt));
    const bool prompts = std::any_of(others.begin(), others.end(), is_prompt);
    ASSERT_EQ(prompts, plan.prompt_tiles);
    ASSERT_TRUE(shape.warpgroups ? !prompts : warpgroups.empty());
  }

  void units(const std::map<Tile, std::vector<AttentionTask>>& by_tile) const {
    std::set<std::uint32_t> used;
    std::map<Tile, AttentionMerge> merges;
    for (const AttentionMerge& merge : plan.merges) {
      ASSERT_TRUE(merges.emplace(Tile{merge.run, merge.first_pair, merge.kv_head}, merge).second);
    }
    std::size_t merged = 0;
    for (const auto& [tile, tasks] : by_tile) {
      const std::uint32_t groups = round_up(tasks.front().pairs, kAttentionDecodePairs);
      std::vector<std::uint32_t> written;  // first unit of each partial, by ascending context
      for (const AttentionTask& task : tasks) {
        const bool works = tasks.size() == 1 && shape.deterministic && splits(task) > 1;
        const std::uint32_t count = tasks.size() > 1 ? partials(task) : works ? 1 : 0;
        for (std::uint32_t i = 0; i < count; ++i) {
          if (tasks.size() > 1) written.push_back(task.partial + i * groups);
          for (std::uint32_t g = 0; g < groups; ++g) {
            ASSERT_TRUE(used.insert(task.partial + i * groups + g).second) << "two tasks write one unit";
          }
        }
      }
      if (written.empty()) continue;
      for (std::uint32_t g = 0; g < groups; ++g, ++merged) {
        const auto at = merges.find({std::get<0>(tile), std::get<1>(tile) + g * 16, std::get<2>(tile)});
        ASSERT_NE(at, merges.end());
        const AttentionMerge& merge = at->second;
        ASSERT_EQ(merge.pairs, std::min(16u, tasks.front().pairs - g * 16));
        ASSERT_EQ(merge.partials, written.size());
        for (std::uint32_t i = 0; i < merge.partials; ++i) {
          ASSERT_EQ(merge.partial + i * merge.stride, written[i] + g);
        }
      }
    }
    EXPECT_EQ(merged, plan.merges.size());
    EXPECT_EQ(used.size(), plan.units);
    if (!used.empty()) {
      EXPECT_LT(*used.rbegin(), plan.units);
    }
  }
};

void plan_and_check(const AttentionShape& shape, const std::vector<AttentionRun>& runs, AttentionPlan& plan) {
  std::uint32_t rows = 0;
  for (const AttentionRun& run : runs) rows += run.rows;
  const AttentionLimits limits = attention_limits(shape, static_cast<std::uint32_t>(runs.size()), rows);
  AttentionPlanner(shape, limits).plan(runs, plan);
  EXPECT_LE(plan.tasks.size(), limits.others.tasks);
  EXPECT_LE(plan.warpgroup_tasks.size(), limits.warpgroups.tasks);
  EXPECT_LE(plan.merges.size(), limits.merges());
  EXPECT_LE(plan.units * std::uint64_t{16} * shape.head_dim * sizeof(float), limits.values_bytes);
  EXPECT_LE(plan.units * std::uint64_t{16} * 2 * sizeof(float), limits.statistics_bytes);
  const Checked checked{shape, runs, plan};
  std::map<Checked::Tile, std::vector<AttentionTask>> by_tile;
  checked.tiles(by_tile);
  if (!testing::Test::HasFatalFailure()) checked.units(by_tile);
  checked.lists();
}

TEST(AttentionPlanTest, SmallWorldsAreCoveredExactly) {
  AttentionPlan plan;
  for (const bool deterministic : {false, true}) {
    for (const std::uint32_t ratio : {1u, 3u, 4u, 16u, 20u}) {
      for (const std::uint32_t window : {0u, 1u, 40u, 600u}) {
        for (const std::uint32_t rows : {1u, 2u, 5u, 33u, 130u}) {
          for (const std::uint32_t position : {0u, 31u, 63u, 64u, 511u, 512u, 1500u, 9000u}) {
            const AttentionShape shape{.heads = 2 * ratio,
                                       .kv_heads = 2,
                                       .head_dim = rows == 33 ? 256u : 128u,
                                       .window = window,
                                       .multiprocessors = 3,
                                       .deterministic = deterministic,
                                       .warpgroups = !deterministic && ratio != 3};
            plan_and_check(shape, {{0, rows, position, 0}, {rows, 1, 700, 0}}, plan);
            ASSERT_FALSE(HasFailure()) << "ratio " << ratio << " window " << window << " rows " << rows
                                       << " position " << position << " deterministic " << deterministic;
          }
        }
      }
    }
  }
}

TEST(AttentionPlanTest, RandomBatchesAreCoveredExactly) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  AttentionPlan plan;
  for (int trial = 0; trial < 300; ++trial) {
    const std::uint32_t kv_heads = 1 + below(8);
    const AttentionShape shape{.heads = kv_heads * (1 + below(12)),
                               .kv_heads = kv_heads,
                               .head_dim = below(2) == 0 ? 64u : 256u,
                               .window = below(3) == 0 ? 1 + below(5000) : 0,
                               .multiprocessors = 1 + below(140),
                               .deterministic = trial % 2 == 0,
                               .warpgroups = trial % 4 == 1};
    std::vector<AttentionRun> runs;
    std::uint32_t row = 0;
    for (std::uint32_t r = 0, count = 1 + below(40); r < count; ++r) {
      const std::uint32_t rows = below(3) == 0 ? 1 + below(600) : 1;
      runs.push_back({row, rows, below(4) == 0 ? below(200000) : below(3000), 0});
      row += rows;
    }
    plan_and_check(shape, runs, plan);
    ASSERT_FALSE(HasFailure()) << "trial " << trial;
  }
}

// As `blocks` thread blocks that run at a time take tasks: in order, each when it is free.
double efficiency(const std::vector<AttentionTask>& tasks, std::uint32_t blocks) {
  std::vector<double> ends(blocks);
  double total = 0, last = 0;
  for (const AttentionTask& task : tasks) {
    const double steps = round_up(task.key_end, 64) - task.key_begin / 64;
    auto& first = *std::min_element(ends.begin(), ends.end());
    first += steps;
    total += steps;
    last = std::max(last, first);
  }
  return total / (last * blocks);
}

TEST(AttentionPlanTest, WorkIsEven) {
  AttentionPlan plan;
  for (const bool deterministic : {false, true}) {
    const AttentionShape shape{
        .heads = 32, .kv_heads = 8, .head_dim = 128, .multiprocessors = 132, .deterministic = deterministic};
    const auto decode = [&](std::vector<std::uint32_t> contexts) {
      std::vector<AttentionRun> runs;
      for (std::uint32_t i = 0; i < contexts.size(); ++i) runs.push_back({i, 1, contexts[i] - 1, 0});
      plan_and_check(shape, runs, plan);
      return efficiency(plan.tasks, 2 * 132);
    };
    EXPECT_GT(decode({131072}), 0.9) << deterministic;
    EXPECT_GT(decode(std::vector<std::uint32_t>(40, 8192)), 0.8) << deterministic;
    EXPECT_GT(decode(std::vector<std::uint32_t>(256, 4096)), 0.9) << deterministic;
    std::vector<std::uint32_t> mixed(60, 1000);
    mixed.push_back(100000);
    EXPECT_GT(decode(mixed), 0.8) << deterministic;
    // Many short contexts are not worth a second kernel.
    decode(std::vector<std::uint32_t>(256, 512));
    EXPECT_TRUE(plan.merges.empty());
  }
}

TEST(AttentionPlanTest, WorkOfWarpgroupsIsEven) {
  AttentionPlan plan;
  for (const std::uint32_t kv_heads : {1u, 2u, 8u}) {
    const AttentionShape shape{.heads = 4 * kv_heads,
                               .kv_heads = kv_heads,
                               .head_dim = 128,
                               .multiprocessors = 132,
                               .warpgroups = true};
    for (const std::uint32_t rows : {1024u, 2048u}) {
      std::vector<AttentionRun> runs;
      for (std::uint32_t i = 0; i < 48 * 8 / kv_heads; ++i) runs.push_back({i, 1, 8191, 0});
      runs.push_back({static_cast<std::uint32_t>(runs.size()), rows * 8 / kv_heads, 8192 - rows, 0});
      plan_and_check(shape, runs, plan);
      EXPECT_GT(efficiency(plan.warpgroup_tasks, 132), 0.8) << kv_heads << " heads, " << rows << " rows";
      EXPECT_GT(efficiency(plan.tasks, 2 * 132), 0.8) << kv_heads << " heads, " << rows << " rows";
    }
    plan_and_check(shape, {{0, 8192, 0, 0}}, plan);
    EXPECT_GT(efficiency(plan.warpgroup_tasks, 132), 0.85) << kv_heads;
  }
}

// Each kind is planned as if it were alone.
TEST(AttentionPlanTest, KindsKnowNothingOfEachOther) {
  const AttentionShape shape{
      .heads = 32, .kv_heads = 8, .head_dim = 128, .multiprocessors = 132, .warpgroups = true};
  std::vector<AttentionRun> decodes;
  for (std::uint32_t i = 0; i < 48; ++i) decodes.push_back({i, 1, 8191, 0});
  const std::vector<AttentionRun> prompts{{48, 1024, 7168, 0}};
  std::vector<AttentionRun> runs = decodes;
  runs.insert(runs.end(), prompts.begin(), prompts.end());
  AttentionPlan both, alone;
  plan_and_check(shape, runs, both);
  const auto contexts = [](const std::vector<AttentionTask>& tasks) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
    for (const AttentionTask& task : tasks) all.emplace_back(task.key_begin, task.key_end);
    return all;
  };
  plan_and_check(shape, decodes, alone);
  EXPECT_EQ(contexts(both.tasks), contexts(alone.tasks));
  plan_and_check(shape, prompts, alone);
  EXPECT_EQ(contexts(both.warpgroup_tasks), contexts(alone.warpgroup_tasks));
}

TEST(AttentionPlanTest, BoundsKnowNoContext) {
  const AttentionShape shape{.heads = 32, .kv_heads = 8, .head_dim = 128, .multiprocessors = 132};
  const AttentionLimits limits = decode_limits(shape, 64);
  EXPECT_LE(limits.values_bytes, std::uint64_t{16} << 20);
  AttentionPlanner planner(shape, limits);
  AttentionPlan plan, again;
  for (const std::uint32_t context : {1u, 1000u, 100000u, 4000000u}) {
    const std::vector<AttentionRun> runs(64, AttentionRun{0, 1, context - 1, 0});
    planner.plan(runs, plan);
    EXPECT_LE(plan.tasks.size(), limits.others.tasks);
    EXPECT_LE(plan.units, limits.others.units);
    planner.plan(runs, again);
    ASSERT_EQ(plan.tasks.size(), again.tasks.size());
    for (std::size_t i = 0; i < plan.tasks.size(); ++i)
      EXPECT_EQ(plan.tasks[i].partial, again.tasks[i].partial);
  }
}

// Though there may be as many runs as rows, one of them may have all rows.
TEST(AttentionPlanTest, BoundsOfManyRunsSufficeForALongOne) {
  for (const bool warpgroups : {false, true}) {
    AttentionShape shape{.heads = 32, .kv_heads = 8, .head_dim = 128, .multiprocessors = 132};
    shape.warpgroups = warpgroups;
    const AttentionLimits limits = attention_limits(shape, 2048, 2048);
    AttentionPlan plan;
    for (const std::vector<AttentionRun>& runs :
         {std::vector<AttentionRun>{{0, 2048, 30'000, 0}},
          std::vector<AttentionRun>(2048, AttentionRun{0, 1, 5'000, 0})}) {
      AttentionPlanner(shape, limits).plan(runs, plan);
      EXPECT_LE(plan.warpgroup_tasks.size(), limits.warpgroups.tasks);
      EXPECT_LE(plan.tasks.size(), limits.others.tasks);
      EXPECT_LE(plan.units, limits.warpgroups.units + limits.others.units);
    }
  }
}

// Shared memory has 32 banks of four bytes. Eight lanes' 16 bytes are moved at a time.
template <int kHead>
void check_banks() {
  using Layout = RowLayout<kHead>;
  std::set<std::uint32_t> taken;
  for (std::uint32_t row = 0; row < 64; ++row) {
    for (std::uint32_t chunk = 0; chunk < Layout::kChunks; ++chunk) {
      const std::uint32_t at = Layout::offset(row, chunk);
      EXPECT_EQ(at % 16, 0u);
      EXPECT_LE(at + 16, Layout::bytes(64));
      EXPECT_TRUE(taken.insert(at).second) << "two chunks lie in one place";
    }
  }
  const auto distinct = [](const std::vector<std::uint32_t>& offsets) {
    std::set<std::uint32_t> banks;
    for (const std::uint32_t at : offsets) banks.insert(at / 16 % 8);
    return banks.size() == offsets.size();
  };
  // A matrix of 8 rows.
  for (std::uint32_t row = 0; row < 64; row += 8) {
    for (std::uint32_t chunk = 0; chunk < Layout::kChunks; ++chunk) {
      std::vector<std::uint32_t> offsets;
      for (std::uint32_t i = 0; i < 8; ++i) offsets.push_back(Layout::offset(row + i, chunk));
      EXPECT_TRUE(distinct(offsets)) << "matrices of head size " << kHead;
    }
  }
  // Eight lanes' asynchronous copies: neighbouring chunks, of two rows where a row ends.
  std::uint32_t worst = 0;
  for (std::uint32_t piece = 0; piece < 64 * Layout::kChunks; piece += 8) {
    std::map<std::uint32_t, std::uint32_t> banks;
    for (std::uint32_t i = piece; i < piece + 8; ++i) {
      worst = std::max(worst, ++banks[Layout::offset(i / Layout::kChunks, i % Layout::kChunks) / 16 % 8]);
    }
  }
  EXPECT_LE(worst, Layout::kPermuted ? 1u : 2u) << "copies of head size " << kHead;
}

TEST(AttentionLayoutTest, RowsLieInDistinctBanks) {
  check_banks<64>();
  check_banks<80>();
  check_banks<96>();
  check_banks<128>();
  check_banks<256>();
}

TEST(AttentionLayoutTest, ScoresLieInDistinctBanks) {
  // Sixteen lanes' eight bytes are moved at a time: rows g .. g + 3, columns 2t.
  for (std::uint32_t first = 0; first < 16; first += 4) {
    for (std::uint32_t key = 0; key < 64; key += 8) {
      std::set<std::uint32_t> banks;
      for (std::uint32_t lane = 0; lane < 16; ++lane) {
        banks.insert(ScoreLayout::index(first + lane / 4, key + 2 * (lane % 4)) / 2 % 16);
      }
      EXPECT_EQ(banks.size(), 16u);
    }
  }
}

}  // namespace
}  // namespace loci::cuda
