// SPDX-License-Identifier: Apache-2.0
// Conversations on models whose layers see windows: resident, forked, evicted, in a batch, suspended, and
// after a restart. Which plan brings state back: engine_restores_test.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "loci/engine/log/event_log.h"
#include "loci/engine/testing/engine_windows_testing.h"

namespace loci {
namespace {

TEST_P(EngineWindows, ResidentForkedEvictedInBatchAndResumed) {
  const bool sound = GetParam().fails_one_in == 0;
  const Tokens prompt = text(1, 170);
  EXPECT_EQ(check(prompt, 30).cached_tokens, 0u);
  await_saves();
  const Tokens history = prompt + last_.tokens;
  const Tokens second = history + text(2, 25);
  EXPECT_EQ(check(second, 20).cached_tokens, history.size() - 1) << "all that was computed is there";
  const Tokens third = second + last_.tokens + text(3, 40);
  // It parts where others went on: behind every window, so what the windows lack is computed again.
  check(Tokens(second.begin(), second.begin() + 90) + text(4, 30), 20);
  // Conversations that take the memory.
  for (std::uint64_t seed = 10; seed < 16; ++seed) {
    check(text(seed, 180), 10);
    if (sound) await_saves();  // else a slow machine lets saves give way, and there is nothing to load
  }
  check(third, 20);
  // Together, sharing a prefix; there is not room for all. (Where saves hold the room, one may run after
  // another.)
  std::uint32_t suspensions = check_together(third, 20);
  if (GetParam().groups[0].window == 0) {
    for (std::uint64_t seed = 30; seed < 80 && suspensions == 0; seed += 10)
      suspensions = check_together(third, seed);
    EXPECT_GT(suspensions, 0u);
  }
  EXPECT_GT(engine_->stats().evictions_total, 0u);
  // Saves that are still on their way hold what they read.
  for (int i = 0; i < 12'000 && engine_->stats().blocks_pinned > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(engine_->stats().blocks_pinned, 0u);
  if (GetParam().passes_ahead > 0) {
    EXPECT_GT(ahead_->followed(), 300u);
  }
  const MoverStats moved = engine_->mover_stats();
  // Where there are both, what is loaded comes from either. (Behind a window one transfer that fails leaves
  // nothing to load.)
  if (sound && (GetParam().groups[0].host_blocks > 0 || GetParam().groups[0].disk_blocks > 0)) {
    EXPECT_GT(moved.host_load.bytes_total + moved.disk_load.bytes_total, 0u);
  }
  expect_hidden();
  if (GetParam().fails_one_in > 0) {
    EXPECT_GT(moved.host_load.failures_total + moved.disk_load.failures_total +
                  moved.host_save.failures_total + moved.disk_save.failures_total,
              0u);
  }
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  EXPECT_GT(replayed->compared, 200u);
}

class EngineOnDisk : public EngineWindows {};

// The next engine has what the disk holds, and its log replays too.
TEST_P(EngineOnDisk, StateOutlivesTheEngine) {
  check(text(1, 170), 30);
  const Tokens second = text(1, 170) + last_.tokens + text(2, 25);
  // Within its grace a drain saves what is not saved yet; an engine that just ends begins no save.
  engine_->drain(kDrainMax);
  ASSERT_TRUE(engine_->wait_drained(kDrainMax));
  // Else the first write may have failed, and the disk is left alone.
  const bool sound = GetParam().fails_one_in == 0;
  if (sound) {
    EXPECT_EQ(engine_->stats().partial_saved_total, 1u) << "the end, of which the next token sees a window";
  }
  engine_.reset();
  const std::uint64_t entries = disk_.slots.size();
  EXPECT_TRUE(entries > 0 || !sound);
  start();
  const auto known = [&] {
    const CoreStats stats = engine_->stats();
    return stats.recovered_total + stats.orphans_total;
  };
  for (int i = 0; i < 12'000 && known() < entries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const Usage usage = check(second, 20);
  // Plans that compute part of it may compute all, if loads are as slow.
  const RestoreRule rule = GetParam().restore;
  const bool loads = rule == RestoreRule::kKv || rule == RestoreRule::kHidden || !GetParam().even_links;
  if (sound) {
    EXPECT_GT(engine_->stats().recovered_total, 0u);
  }
  if (sound && loads) {
    EXPECT_GE(usage.cached_tokens, 160u);
    EXPECT_GT(engine_->mover_stats().disk_load.bytes_total, 0u);
    if (GetParam().hidden_percent > 0) {
      EXPECT_GT(engine_->stats().hidden_loaded_total, 0u);
    }
  }
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
}

const auto kOnDisk = testing::Values(
    Case{"full_disk", {0, 0}, {{0, 26, 0, 100}}}, Case{"full_tiers", {0, 0}, {{0, 26, 20, 100}}, 8},
    Case{"mixed_disk", {48, 0, 48, 48}, {{0, 26, 0, 100}, {48, 24, 0, 60}}},
    Case{"mixed_tiers", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}, 15},
    Case{"mixed_tiers_sound", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}},
    Case{"full_hidden", {0, 0}, {{0, 26, 0, 60}}, 0, 0, RestoreRule::kAuto, false, 100},
    Case{"two_forms", {0, 0}, {{0, 26, 0, 60}}, 0, 0, RestoreRule::kAuto, false, 60},
    Case{"two_forms_faults", {0, 0}, {{0, 26, 0, 60}}, 8, 0, RestoreRule::kAuto, false, 60},
    Case{"two_forms_ahead", {0, 0}, {{0, 26, 0, 60}}, 0, 1, RestoreRule::kAuto, false, 60},
    Case{"full_tiers_ahead", {0, 0}, {{0, 26, 20, 100}}, 8, 1},
    Case{"mixed_tiers_ahead", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}, 15, 1});
INSTANTIATE_TEST_SUITE_P(Models, EngineOnDisk, kOnDisk, name_of);
INSTANTIATE_TEST_SUITE_P(Plans, EngineOnDisk,
                         testing::ValuesIn(forced_plans(
                             {{"disk", {0, 0}, {{0, 26, 0, 100}}},
                              {"tiers", {0, 0}, {{0, 26, 20, 100}}, 15},
                              {"two_forms", {0, 0}, {{0, 26, 0, 60}}, 0, 0, RestoreRule::kAuto, false, 60},
                              {"windows", {48, 0, 48, 48}, {{0, 26, 0, 100}, {48, 24, 0, 60}}},
                              {"wide", {400, 0, 400, 400}, {{0, 26, 0, 100}, {400, 26, 0, 100}}}})),
                         plan_name_of);
INSTANTIATE_TEST_SUITE_P(ModelsOnDisk, EngineWindows, kOnDisk, name_of);
INSTANTIATE_TEST_SUITE_P(
    Models, EngineWindows,
    testing::Values(Case{"full_host", {0, 0}, {{0, 26, 100}}},
                    Case{"mixed_host", {48, 0, 48, 48}, {{0, 26, 100}, {48, 24, 60}}, 60},
                    Case{"full", {0, 0}, {{0, 26}}}, Case{"window", {48, 48, 48}, {{48, 20}}},
                    Case{"mixed", {48, 0, 48, 48}, {{0, 26}, {48, 24}}},
                    Case{"three", {70, 0, 33, 33}, {{0, 26}, {70, 26}, {33, 22}}},
                    Case{"full_host_ahead", {0, 0}, {{0, 26, 100}}, 0, 1},
                    Case{"three_ahead", {70, 0, 33, 33}, {{0, 26}, {70, 26}, {33, 22}}, 0, 1}),
    name_of);

}  // namespace
}  // namespace loci
