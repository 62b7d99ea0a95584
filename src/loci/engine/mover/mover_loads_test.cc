// SPDX-License-Identifier: Apache-2.0
// Loads: whatever way a block's state has gone, a pass that waits for it gives the very bits of one that
// found it on the device.
#include "loci/base/thread_state_testing.h"
#include "loci/compute/backend_testing.h"
#include "loci/engine/testing/mover_testing.h"

namespace loci {
namespace {

TEST_P(MoverTest, StateComesBackFromHostMemoryWhileThePassWaits) {
  make_mover(
      {.before_slice = [](const Move&, std::uint32_t) { return after(std::chrono::milliseconds(1)); }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 10));
  overwrite(0);
  expect_loaded(moves(Tier::kHost, 10, Tier::kDevice, 5), 5);
  expect_loaded(moves(Tier::kHost, 10, Tier::kDevice, 0), 0);
}

TEST_P(MoverTest, StateComesBackFromTheDiskWhileThePassWaits) {
  make_mover({},
             {.read = [](const BlockRead&, std::uint32_t) { return after(std::chrono::milliseconds(1)); }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 3));
  overwrite(0);
  expect_loaded(moves(Tier::kDisk, 3, Tier::kDevice, 8), 8);
}

TEST_P(MoverTest, StateIsCopiedInsideTheDevice) {
  make_mover();
  expect_loaded(moves(Tier::kDevice, 0, Tier::kDevice, 12), 12);
}

// From every tier, and from bits that stay what they were.
TEST_P(MoverTest, KeysAreTakenToOtherPositionsOnTheWay) {
  make_mover();
  ASSERT_EQ(backend_->info().positions, Positions::kRotary);
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  for (const auto& [tier, first] : {std::pair(Tier::kDevice, 0u), {Tier::kHost, 4u}, {Tier::kDisk, 4u}}) {
    std::vector<Move> loads = moves(tier, first, Tier::kDevice, 8);
    for (Move& load : loads) load.rotate_by = -64;
    carry_out(std::move(loads));
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        std::vector<std::byte> wanted(backend_->info().groups[0].layer_slice_bytes), got(wanted.size());
        save_slice(*backend_, SlotId(block), layer, wanted);
        backend_->rotate_keys(layer, -64, wanted);
        save_slice(*backend_, SlotId(8 + block), layer, got);
        ASSERT_EQ(got, wanted) << tier_name(tier) << ", layer " << layer << ", block " << block;
      }
    }
    EXPECT_EQ(logits_behind(0), expected_);
    overwrite(8);
  }
  expect_loaded(moves(Tier::kHost, 4, Tier::kDevice, 12), 12);
}

// One block fails in one layer: the span that reads it is poisoned, whoever reads the others is not.
TEST_P(MoverTest, AFailurePoisonsExactlyTheSpansThatReadIt) {
  for (std::uint32_t bad = 0; bad < layers(); ++bad) {
    make_mover({.before_slice = [bad](const Move& load, std::uint32_t layer) {
      const bool fails = load.to == Tier::kDevice && load.entry.key.bytes[0] == 2 && layer == bad;
      return after(std::chrono::milliseconds(1), fails ? internal_error("the link broke") : Status());
    }});
    carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
    std::vector<Move> loads = moves(Tier::kHost, 4, Tier::kDevice, 8);
    const std::vector<OperationId> begun = ids(loads);
    mover_->start(std::move(loads), {});
    // The first block alone; all of them; nothing that moves.
    const Tokens other = text(2, 40);
    BlockTable table{.blocks = {SlotId(8), SlotId(kScratch + 1)}};
    Span first = span(prompt_, kBlockTokens, kBlockTokens + 5, 8);
    first.tables.assign(groups(), table);
    Span own = span(other, 0, 20, 16);
    const std::vector<Status> statuses = run({first, span_behind(8), own});
    EXPECT_TRUE(statuses[0].ok()) << bad;
    EXPECT_EQ(statuses[1].code(), StatusCode::kDataLoss) << bad;
    EXPECT_TRUE(statuses[2].ok()) << bad;
    EXPECT_EQ(ends_.wait(begun[0]), MoveResult::kDone);
    EXPECT_EQ(ends_.wait(begun[1]), MoveResult::kFailed);
    EXPECT_EQ(ends_.wait(begun[2]), MoveResult::kDone);
    // Brought again, by a link that works, it is whole.
    mover_.reset();
    make_mover();
    expect_loaded(moves(Tier::kDevice, 0, Tier::kDevice, 8), 8);
    mover_.reset();
  }
}

TEST_P(MoverTest, WhatTheDiskCannotReadIsToldApart) {
  for (const auto& [code, result] : {std::pair(StatusCode::kDataLoss, MoveResult::kDamaged),
                                     std::pair(StatusCode::kNotFound, MoveResult::kGone),
                                     std::pair(StatusCode::kUnavailable, MoveResult::kFailed)}) {
    for (std::uint32_t bad = 0; bad < backend_->info().groups.back().layers.size(); ++bad) {
      const auto last_group = groups() - 1;
      make_mover({}, {.read = [=](const BlockRead& item, std::uint32_t layer) {
                   const bool fails = item.key.bytes[0] == 3 && item.group == last_group && layer == bad;
                   return fails ? Status(code, "no such luck") : Status();
                 }});
      carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
      std::vector<Move> loads = moves(Tier::kDisk, 4, Tier::kDevice, 8);
      const std::vector<OperationId> begun = ids(loads);
      mover_->start(std::move(loads), {});
      EXPECT_EQ(run({span_behind(8)}).front().code(), StatusCode::kDataLoss);
      EXPECT_EQ(ends_.wait(begun[0]), MoveResult::kDone);
      EXPECT_EQ(ends_.wait(begun[1]), MoveResult::kDone);
      EXPECT_EQ(ends_.wait(begun[2]), result);
      // Another block's entry in the slot is none of this one's.
      std::vector<Move> foreign;
      foreign.push_back(move(Tier::kDisk, 4, Tier::kDevice, 8, 77));
      const OperationId id = foreign.front().id;
      mover_->start(std::move(foreign), {});
      EXPECT_EQ(ends_.wait(id), MoveResult::kDamaged);
      mover_.reset();
    }
  }
}

// A disk that does not answer: the load is given up, its slot belongs to others, and what comes late is
// dropped.
TEST_P(MoverTest, ALateLoadIsGivenUpAndWritesNothing) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  make_mover({.load_limit = 20 * kNanosPerMilli}, {.read = [open](const BlockRead&, std::uint32_t layer) {
               if (layer == 1) open.wait();
               return Status();
             }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  std::vector<Move> loads = moves(Tier::kDisk, 4, Tier::kDevice, 8);
  std::vector<OperationId> begun = ids(loads);
  mover_->start(std::move(loads), {});
  EXPECT_EQ(run({span_behind(8)}).front().code(), StatusCode::kDataLoss);
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kTooSlow);
  // A prefetch behind them has not even begun.
  std::vector<Move> prefetches = moves(Tier::kDisk, 4, Tier::kHost, 4);
  begun = ids(prefetches);
  mover_->start(std::move(prefetches), {});
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kTooSlow);
  overwrite(8);
  EXPECT_TRUE(run({span(text(99, 200), kBlocks * kBlockTokens, 100, 8)}).front().ok());
  const Bits others = bits(results_.front());
  gate.set_value();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 10));
  mover_.reset();  // waits for the store
  EXPECT_TRUE(run({span(text(99, 200), kBlocks * kBlockTokens, 100, 8)}).front().ok());
  EXPECT_EQ(bits(results_.front()), others);
}

// The disk is slow, but brings what the plan has given it time for.
TEST_P(MoverTest, ALoadHasTheTimeThatItsPlanGaveIt) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> asked;
  std::atomic<bool> is_first = true;
  make_mover({.load_limit = kNanosPerMilli}, {.read = [&, open](const BlockRead&, std::uint32_t layer) {
               if (layer == 1 && is_first.exchange(false)) {
                 asked.set_value();
                 open.wait();
               }
               return Status();
             }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  std::vector<Move> loads = moves(Tier::kDisk, 4, Tier::kDevice, 8);
  loads.back().time_limit = 600 * kNanosPerSecond;  // one batch, so all have it
  const std::vector<OperationId> begun = ids(loads);
  mover_->start(std::move(loads), {});
  asked.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // beyond the limit of those that have none
  EXPECT_EQ(ends_.count(), kBlocks) << "the saves alone";
  gate.set_value();
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
}

// So is a load from host memory, though the mover's thread is held up in the middle of it.
TEST_P(MoverTest, ALoadFromHostMemoryHasTheTimeThatItsPlanGaveIt) {
  make_mover({.load_limit = kNanosPerMilli, .before_slice = [](const Move& load, std::uint32_t layer) {
                const bool waits = load.to == Tier::kDevice && layer == 0;
                return waits ? after(std::chrono::milliseconds(5)) : Status();
              }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  std::vector<Move> loads = moves(Tier::kHost, 4, Tier::kDevice, 8);
  loads.back().time_limit = 600 * kNanosPerSecond;  // one batch, so all have it
  carry_out(std::move(loads));
  std::vector<Move> late = moves(Tier::kHost, 4, Tier::kDevice, 12);
  const std::vector<OperationId> begun = ids(late);
  mover_->start(std::move(late), {});
  for (const OperationId id : begun) {
    const MoveResult result = ends_.wait(id);  // where there is one step, it may have begun in time
    EXPECT_TRUE(result == MoveResult::kTooSlow || steps().size() == 1) << "it has no time of its own";
  }
}

// One that is given up after a part of it came tells so; one of which nothing came does not.
TEST_P(MoverTest, ALoadThatIsGivenUpTellsWhetherAPartCame) {
  // How many of the loads told so.
  const auto came = [&](std::uint32_t hangs_at, Nanos load_limit) {
    std::promise<void> gate;
    std::shared_future<void> open = gate.get_future().share();
    make_mover({.load_limit = load_limit}, {.read = [=](const BlockRead&, std::uint32_t layer) {
                 if (layer == hangs_at) open.wait();
                 return Status();
               }});
    carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
    std::vector<Move> loads = moves(Tier::kDisk, 4, Tier::kDevice, 8);
    const std::vector<OperationId> begun = ids(loads);
    mover_->start(std::move(loads), {});
    std::uint32_t count = 0;
    for (const OperationId id : begun) {
      EXPECT_EQ(ends_.wait(id), MoveResult::kTooSlow);
      count += ends_.outcome(id).came ? 1 : 0;
    }
    gate.set_value();
    mover_.reset();
    return count;
  };
  EXPECT_EQ(came(0, 200 * kNanosPerMilli), 0u);
  // (On a busy machine the first layers may take longer than the limit.)
  Nanos limit = 200 * kNanosPerMilli;
  while (came(1, limit) < kBlocks && limit < 20 * kNanosPerSecond) limit *= 2;
  EXPECT_LT(limit, 20 * kNanosPerSecond);
}

TEST_P(MoverTest, LoadsGoBeforeSavesAndLayerByLayer) {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;  // move, layer
  std::promise<void> first_save;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  make_mover({.before_slice = [&](const Move& moved, std::uint32_t layer) {
    bool first = false;
    {
      std::lock_guard lock(mutex);
      first = order.empty();
      order.emplace_back(moved.id.value, layer);
    }
    if (first) {
      first_save.set_value();
      open.wait();
    }
    return Status();
  }});
  std::vector<Move> saves;
  for (std::uint32_t i = 0; i < 6; ++i) saves.push_back(move(Tier::kDevice, i % 3, Tier::kHost, 4 + i, 1));
  const std::vector<OperationId> saved = ids(saves);
  mover_->start(std::move(saves), {});
  first_save.get_future().wait();
  std::vector<Move> loads = moves(Tier::kDevice, 0, Tier::kDevice, 8);
  const std::vector<OperationId> loaded = ids(loads);
  mover_->start(std::move(loads), {});
  gate.set_value();
  for (const OperationId id : saved) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  for (const OperationId id : loaded) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> load_order, wanted;
  std::size_t saves_before = 0;
  for (const auto& step : order) {
    if (step.first >= loaded.front().value) {
      load_order.push_back(step);
    } else if (load_order.empty()) {
      ++saves_before;
    }
  }
  for (const std::vector<std::uint32_t>& step : steps()) {
    for (const OperationId id : loaded) {
      for (const std::uint32_t layer : step) wanted.emplace_back(id.value, layer);
    }
  }
  EXPECT_EQ(load_order, wanted);
  EXPECT_LE(saves_before, layers()) << "at most the part of the save that was being copied";
}

// The end of a sequence comes whole before the blocks that the same plan brings behind it.
TEST_P(MoverTest, OneBatchOfAPlanComesBeforeTheNext) {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;  // move, layer
  make_mover({.before_slice = [&](const Move& moved, std::uint32_t layer) {
    std::lock_guard lock(mutex);
    order.emplace_back(moved.id.value, layer);
    return Status();
  }});
  std::vector<Move> loads = moves(Tier::kDevice, 0, Tier::kDevice, 8);
  ASSERT_GE(loads.size(), 2u);
  const std::vector<OperationId> loaded = ids(loads);
  for (Move& load : loads) load.together = loads.front().id == load.id ? loaded[0] : loaded[1];
  mover_->start(std::move(loads), {});
  for (const OperationId id : loaded) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(order.size(), loaded.size() * layers());
  for (std::size_t i = 0; i < order.size(); ++i)
    EXPECT_EQ(order[i].first == loaded[0].value, i < layers()) << "step " << i;
}

TEST_P(MoverTest, StoppingFailsWhatHasNotComeAndTellsNobody) {
  std::promise<void> began;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  make_mover({.before_slice = [&](const Move& load, std::uint32_t layer) {
    if (load.to == Tier::kDevice && layer == 0 && load.entry.key.bytes[0] == 1) {
      began.set_value();
      open.wait();
    }
    return Status();
  }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  mover_->start(moves(Tier::kHost, 4, Tier::kDevice, 8), {});
  began.get_future().wait();
  mover_->start(moves(Tier::kHost, 4, Tier::kDevice, 12), {});
  std::promise<pid_t> stopping;
  std::thread stopper([&] {
    stopping.set_value(::gettid());
    mover_.reset();
  });
  wait_until_it_sleeps(stopping.get_future().get());  // it has told the mover, and waits for its thread
  gate.set_value();
  stopper.join();
  EXPECT_EQ(run({span_behind(12)}).front().code(), StatusCode::kDataLoss);
  // What had begun may have been all of it.
  EXPECT_EQ(run({span_behind(8)}).front().code(),
            steps().size() > 1 ? StatusCode::kDataLoss : StatusCode::kOk);
  EXPECT_EQ(ends_.count(), kBlocks);
}

}  // namespace
}  // namespace loci
