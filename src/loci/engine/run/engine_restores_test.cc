// SPDX-License-Identifier: Apache-2.0
// Whatever plan brings state back, and however slowly the disk answers, the bits are those of computing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loci/engine/log/event_log.h"
#include "loci/engine/testing/engine_windows_testing.h"

namespace loci {
namespace {

class EngineRestores : public EngineWindows {};

// A conversation whose state is taken from it before each turn: whatever plan brings it back, the bits are
// those of computing.
TEST_P(EngineRestores, TheBitsOfComputing) {
  Tokens history = text(1, 250);
  check(history, 6);
  await_saves();  // a tier holds the first turn's state, however slow the machine; later saves may give way
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    std::vector<std::unique_ptr<Waiter>> others;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      others.push_back(std::make_unique<Waiter>());
      submit(text(100 + 10 * turn + seed, 180), 4, *others.back());
    }
    for (const auto& other : others) EXPECT_TRUE(other->wait().status.ok());
    history = history + last_.tokens + text(2 + turn, 20);
    check(history, 6);
  }
  const CoreStats stats = engine_->stats();
  const std::uint64_t loaded = stats.tokens_from_total[1] + stats.tokens_from_total[2];
  const std::uint64_t too_slow = stats.tokens_missed_total[static_cast<std::size_t>(MissReason::kTooSlow)];
  // (Among faults it depends on their order whether a tier holds what a turn misses, and whether it comes.)
  const bool sound = GetParam().fails_one_in == 0;
  if (GetParam().restore == RestoreRule::kRecompute) {
    EXPECT_EQ(loaded, 0u);
    EXPECT_TRUE(too_slow > 0 || !sound);
  } else if (GetParam().restore == RestoreRule::kKv) {
    EXPECT_TRUE(loaded > 0 || !sound);
  }
  // (How much the other plans load follows from how fast this machine computes; the core's worlds, which have
  // a time of their own, hold them to loading in parts.)
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
}

class EngineBesideAHang : public EngineWindows {};

// Others' requests are answered while the disk hangs, and who needs what it holds is when it answers again.
TEST_P(EngineBesideAHang, OthersGoOn) {
  // (Who waited for the disk would not be answered at all; a machine whose cores others have is slow too.)
  constexpr Nanos kHangs = 3 * kNanosPerSecond, kGapMax = 20 * kNanosPerSecond;
  engine_.reset();
  token_cost_ = 20 * kNanosPerMilli;  // a pass is not predicted to take seconds
  start();
  const Tokens prompt = text(1, 170);
  check(prompt, 10);
  const Tokens again = prompt + last_.tokens + text(2, 20);
  const Reply expected = reference_.reply(again, 10);
  for (const bool beside : {true, false}) {  // it comes while others decode, or alone
    for (std::uint64_t seed = 10; seed < 16; ++seed) check(text(seed, 180), 10);
    hangs_ = true;
    Waiter other, waits;
    if (beside) submit(text(30, 20), 120, other);
    submit(again, 10, waits);
    const Nanos begin = clock_.now();
    Nanos slowest = 0;
    for (std::uint64_t seed = 40; clock_.now() - begin < kHangs; ++seed) {
      const Nanos sent = clock_.now();
      check(text(seed, 20), 5);
      slowest = std::max(slowest, clock_.now() - sent);
    }
    EXPECT_LT(slowest, kGapMax) << (beside ? "beside decodes" : "alone");
    hangs_ = false;
    hangs_.notify_all();
    EXPECT_TRUE(waits.wait().status.ok());
    waits.expect(expected);
    if (beside) {
      EXPECT_TRUE(other.wait().status.ok());
    }
  }
}

// Every plan forced, with links that fail, and with sound ones.
const std::vector<Case> kShapes = {
    {"disk", {0, 0}, {{0, 26, 0, 100}}},
    {"tiers", {0, 0}, {{0, 26, 20, 100}}, 15},
    {"tiers_ahead", {0, 0}, {{0, 26, 20, 100}}, 15, 1},
    {"hidden", {0, 0}, {{0, 26, 0, 60}}, 15, 0, RestoreRule::kAuto, true, 70},
    {"hidden_ahead", {0, 0}, {{0, 26, 0, 60}}, 15, 1, RestoreRule::kAuto, true, 70},
    {"windows", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}, 15},    // places
    {"wide", {400, 0, 400, 400}, {{0, 26, 20, 100}, {400, 26, 20, 100}}, 15},  // in part
    {"wide_sound", {400, 0, 400, 400}, {{0, 26, 20, 100}, {400, 26, 20, 100}}},
    {"wide_ahead", {400, 0, 400, 400}, {{0, 26, 20, 100}, {400, 26, 20, 100}}, 15, 1},
};
INSTANTIATE_TEST_SUITE_P(Plans, EngineRestores, testing::ValuesIn(forced_plans(kShapes)), plan_name_of);

INSTANTIATE_TEST_SUITE_P(Models, EngineBesideAHang,
                         testing::Values(Case{"full_hang", {0, 0}, {{0, 26, 0, 100}}}), name_of);

}  // namespace
}  // namespace loci
