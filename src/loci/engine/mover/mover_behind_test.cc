// SPDX-License-Identifier: Apache-2.0
// Movers over a backend whose copies go on after the calls that begin them: when ends are reported, what
// waits for what, and what happens when the device is lost.
#include "loci/base/eventually_testing.h"
#include "loci/engine/testing/mover_testing.h"

namespace loci {
namespace {

class MoverBehindTest : public MoverTest {
 protected:
  // A copy that should not be there would have been made by now.
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
  std::vector<OperationId> start(std::vector<Move> moves) {
    std::vector<OperationId> begun = ids(moves);
    mover_->start(std::move(moves), {});
    return begun;
  }
  void expect_ends(const std::vector<OperationId>& begun, MoveResult result) {
    for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), result);
  }
};

TEST_P(MoverBehindTest, EndsAreToldWhenTheBytesAreThere) {
  make_mover();
  behind_->saves().hold();
  const std::vector<OperationId> saves = start(moves(Tier::kDevice, 0, Tier::kHost, 4));
  pause();
  EXPECT_EQ(ends_.count(), 0u);
  behind_->saves().release();
  expect_ends(saves, MoveResult::kDone);
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    const std::size_t ended = ends_.count();
    behind_->loads().hold();
    const std::vector<OperationId> loads = start(moves(tier, 4, Tier::kDevice, 8));
    pause();
    EXPECT_EQ(ends_.count(), ended);
    behind_->loads().release();
    EXPECT_EQ(logits_behind(8), expected_);
    expect_ends(loads, MoveResult::kDone);
    overwrite(8);
  }
}

// What follows in its slots must not be overwritten by what is still on its way there.
TEST_P(MoverBehindTest, AFailedMoveEndsBehindItsCopies) {
  make_mover({.before_slice = [this](const Move& move, std::uint32_t layer) {
    const bool fails = move.entry.key.bytes[1] == 1 && layer + 1 == layers();
    return fails ? internal_error("the link broke") : Status();
  }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  for (const bool load : {true, false}) {
    const std::size_t ended = ends_.count();
    CopyThread& copies = load ? behind_->loads() : behind_->saves();
    copies.hold();
    std::vector<Move> failing =
        load ? moves(Tier::kHost, 4, Tier::kDevice, 8) : moves(Tier::kDevice, 0, Tier::kHost, 8);
    for (Move& move : failing) move.entry.key.bytes[1] = 1;
    const std::vector<OperationId> begun = start(std::move(failing));
    pause();
    EXPECT_EQ(ends_.count(), ended);
    copies.release();
    expect_ends(begun, MoveResult::kFailed);
  }
  EXPECT_EQ(run({span_behind(8)}).front().code(), StatusCode::kDataLoss);
  EXPECT_EQ(logits_behind(0), expected_);
}

TEST_P(MoverBehindTest, SavesWaitForLoads) {
  std::atomic<std::uint32_t> saved{0};
  make_mover({.before_slice = [&](const Move& move, std::uint32_t) {
    if (move.to == Tier::kHost) ++saved;
    return Status();
  }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  saved = 0;
  behind_->loads().hold();
  const std::vector<OperationId> loads = start(moves(Tier::kHost, 4, Tier::kDevice, 8));
  pause();
  const std::vector<OperationId> saves = start(moves(Tier::kDevice, 0, Tier::kHost, 8));
  pause();
  EXPECT_EQ(saved, 0u);
  behind_->loads().release();
  expect_ends(loads, MoveResult::kDone);
  expect_ends(saves, MoveResult::kDone);
  EXPECT_GT(saved, 0u);
}

TEST_P(MoverBehindTest, FewSavesAreOnTheirWay) {
  std::mutex mutex;
  std::set<std::uint64_t> begun;
  const std::uint64_t block_bytes = backend_->info().block_bytes;
  make_mover({.save_copy_bytes = 2 * block_bytes + block_bytes / 2,
              .before_slice = [&](const Move& move, std::uint32_t) {
                std::lock_guard lock(mutex);
                begun.insert(move.id.value);
                return Status();
              }});
  behind_->saves().hold();
  std::vector<Move> saves;
  for (std::uint32_t i = 0; i < 6; ++i) saves.push_back(move(Tier::kDevice, i % 3, Tier::kHost, 4 + i, 1));
  const std::vector<OperationId> told = start(std::move(saves));
  const auto count = [&] {
    std::lock_guard lock(mutex);
    return begun.size();
  };
  EXPECT_TRUE(eventually([&] { return count() >= 2; }));
  pause();
  EXPECT_EQ(count(), 2u);
  behind_->saves().release();
  expect_ends(told, MoveResult::kDone);
  expect_loaded(moves(Tier::kHost, 4, Tier::kDevice, 8), 8);
}

// Each batch has the link from when the one before it ended: what a load took is not what it waited.
TEST_P(MoverBehindTest, TheLinkIsBusyOnce) {
  std::atomic<bool> is_taken{false};
  make_mover({.before_slice = [&](const Move& move, std::uint32_t) {
    if (move.to == Tier::kDevice) is_taken = true;
    return Status();
  }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  const Nanos before = clock_.now();
  behind_->loads().hold();
  std::vector<OperationId> loads;
  for (std::uint32_t i = 0; i < 8; ++i) {
    std::vector<Move> one;
    one.push_back(move(Tier::kHost, 4, Tier::kDevice, 8 + i, 1));
    for (const OperationId id : start(std::move(one))) loads.push_back(id);
    EXPECT_TRUE(eventually([&] { return is_taken.load(); }));
    pause();
  }
  behind_->loads().release();
  expect_ends(loads, MoveResult::kDone);
  const MoverStats stats = mover_->stats();
  // The first one was held up for all the pauses.
  EXPECT_GE(stats.host_load.busy, 8 * 5 * kNanosPerMilli);
  EXPECT_LE(stats.host_load.busy, clock_.now() - before);
}

TEST_P(MoverBehindTest, ALostDeviceFailsTheMoves) {
  make_mover();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  behind_->loads().hold();
  const std::vector<OperationId> loads = start(moves(Tier::kHost, 4, Tier::kDevice, 8));
  const std::vector<OperationId> reads = start(moves(Tier::kDisk, 4, Tier::kDevice, 12));
  const std::vector<OperationId> saves = start(moves(Tier::kDevice, 0, Tier::kHost, 8));
  pause();
  behind_->lose();
  behind_->loads().release();
  expect_ends(loads, MoveResult::kFailed);
  expect_ends(reads, MoveResult::kFailed);
  expect_ends(saves, MoveResult::kFailed);
  EXPECT_EQ(mover_->stats().queued, 0u);
}

// All that holds of movers, with copies that their caller waits for and such that go on behind it.
INSTANTIATE_TEST_SUITE_P(Models, MoverTest,
                         testing::Values(Case{"full", {0, 0, 0}}, Case{"mixed", {80, 0, 80, 0}},
                                         Case{"full_behind", {0, 0, 0}, 1},
                                         Case{"mixed_behind", {80, 0, 80, 0}, 2}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Models, MoverBehindTest,
                         testing::Values(Case{"full", {0, 0, 0}, 1}, Case{"mixed", {80, 0, 80, 0}, 2}),
                         case_name);

}  // namespace
}  // namespace loci
