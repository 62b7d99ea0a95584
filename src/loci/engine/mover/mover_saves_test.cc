// SPDX-License-Identifier: Apache-2.0
// Saves, tiers and all links at once: what comes back is what was there.
#include "loci/compute/backend_testing.h"
#include "loci/engine/testing/mover_testing.h"
#include "loci/memory/partial_block.h"

namespace loci {
namespace {

TEST_P(MoverTest, StateGoesThroughBothTiersAndBack) {
  make_mover();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  overwrite(0);
  carry_out(moves(Tier::kHost, 4, Tier::kDisk, 9));
  carry_out(moves(Tier::kDisk, 9, Tier::kHost, 15));
  expect_loaded(moves(Tier::kHost, 15, Tier::kDevice, 2), 2);
  const MoverStats stats = mover_->stats();
  const std::uint64_t bytes = kBlocks * backend_->info().block_bytes;
  for (const MoverStats::Link& link : {stats.host_save, stats.disk_save, stats.prefetch, stats.host_load}) {
    EXPECT_EQ(link.moves_total, kBlocks);
    EXPECT_EQ(link.bytes_total, bytes);
    EXPECT_EQ(link.failures_total, 0u);
    EXPECT_GT(link.busy, 0);
  }
  EXPECT_EQ(stats.disk_load.moves_total, 0u);
  EXPECT_EQ(stats.queued, 0u);
}

TEST_P(MoverTest, StateOutlivesTheServerOnTheDisk) {
  make_mover();
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 3));
  mover_.reset();
  overwrite(0);
  make_mover();
  std::promise<Recovered> recovered;
  mover_->recover([&](Recovered found) {
    if (found.last) recovered.set_value(std::move(found));
  });
  EXPECT_EQ(recovered.get_future().get().entries.size(), kBlocks * groups());
  expect_loaded(moves(Tier::kDisk, 3, Tier::kDevice, 8), 8);
}

// Behind the end of a sequence its slot has what somebody else left there.
TEST_P(MoverTest, OfTheEndOfASequenceOnlyWhatItHoldsIsWritten) {
  constexpr std::uint32_t kHeld = 5;
  const auto layer_of = [this](std::uint32_t slot, const LayerGroup& group, std::uint32_t layer) {
    std::vector<std::byte> slice(group.layer_slice_bytes);
    save_slice(*backend_, SlotId(slot), layer, slice);
    return slice;
  };
  make_mover();
  for (const bool by_host : {false, true}) {
    std::vector<Move> saves = moves(Tier::kDevice, 0, by_host ? Tier::kHost : Tier::kDisk, 3);
    for (Move& save : saves) save.entry.tokens = partial_tokens(text(1, kHeld));
    carry_out(saves);
    if (by_host) {
      std::vector<Move> on = moves(Tier::kHost, 3, Tier::kDisk, 9);
      for (Move& save : on) save.entry.tokens = partial_tokens(text(1, kHeld));
      carry_out(on);
    }
    carry_out(moves(Tier::kDisk, by_host ? 9 : 3, Tier::kDevice, 8));
    for (const LayerGroup& group : backend_->info().groups) {
      for (const std::uint32_t layer : group.layers) {
        for (std::uint32_t block = 0; block < kBlocks; ++block) {
          std::vector<std::byte> held = layer_of(block, group, layer);
          ASSERT_NE(layer_of(8 + block, group, layer), held);
          backend_->clear_tokens(layer, kHeld, held);
          ASSERT_EQ(layer_of(8 + block, group, layer), held);
        }
      }
    }
  }
}

TEST_P(MoverTest, AFailedSaveIsToldAndLeavesTheSource) {
  make_mover({.before_slice =
                  [this](const Move& save, std::uint32_t layer) {
                    const bool fails = save.entry.key.bytes[0] == 1 && layer + 1 == layers();
                    return fails ? internal_error("the link broke") : Status();
                  }},
             {.write = [](const BlockEntry& entry) {
               return entry.key.bytes[0] == 2 ? resource_exhausted("the disk is full") : Status();
             }});
  for (const auto& [tier, second] :
       {std::pair(Tier::kHost, MoveResult::kDone), std::pair(Tier::kDisk, MoveResult::kFailed)}) {
    std::vector<Move> saves = moves(Tier::kDevice, 0, tier, 4);
    const std::vector<OperationId> begun = ids(saves);
    mover_->start(std::move(saves), {});
    EXPECT_EQ(ends_.wait(begun[0]), MoveResult::kFailed);
    EXPECT_EQ(ends_.wait(begun[1]), second);
    EXPECT_EQ(ends_.wait(begun[2]), MoveResult::kDone);
  }
  EXPECT_EQ(logits_behind(0), expected_);
  EXPECT_EQ(mover_->stats().disk_save.failures_total, 2u);
  EXPECT_EQ(mover_->stats().queued, 0u);
}

TEST_P(MoverTest, WhatIsOnItsWayToTheDiskIsBounded) {
  std::mutex mutex;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::set<std::uint64_t> copied;
  const std::uint64_t block_bytes = backend_->info().block_bytes;
  make_mover({.save_buffer_bytes = 2 * block_bytes + block_bytes / 2,
              .before_slice =
                  [&](const Move& save, std::uint32_t) {
                    std::lock_guard lock(mutex);
                    copied.insert(save.id.value);
                    return Status();
                  }},
             {.write = [open](const BlockEntry&) {
               open.wait();
               return Status();
             }});
  std::vector<Move> saves;
  for (std::uint32_t i = 0; i < 6; ++i) saves.push_back(move(Tier::kDevice, i % 3, Tier::kDisk, 4 + i, 1));
  const std::vector<OperationId> begun = ids(saves);
  mover_->start(std::move(saves), {});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));  // not held up by the disk
  {
    std::lock_guard lock(mutex);
    EXPECT_LE(copied.size(), 2u + kBlocks);
  }
  EXPECT_EQ(ends_.count(), kBlocks);
  gate.set_value();
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
}

// Every link at once, with failures: each move ends once, and what a good load brought is right.
TEST_P(MoverTest, ManyMovesAtOnce) {
  Random faults(3);
  make_mover({.before_slice =
                  [&](const Move& moved, std::uint32_t) {  // on the mover's thread alone
                    const bool fails = moved.entry.key.bytes[1] == 1 && faults.below(20) == 0;
                    return fails ? internal_error("the link broke") : Status();
                  }},
             {.read = [](const BlockRead& item, std::uint32_t layer) {
               return item.key.bytes[0] == 2 && layer == 0 ? data_loss("flipped") : Status();
             }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 0));
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 0));
  std::size_t begun = ends_.count();
  for (int round = 0; round < 40; ++round) {
    std::vector<Move> batch = moves(Tier::kHost, 0, Tier::kDevice, 4);
    const std::vector<OperationId> loads = ids(batch);
    for (Move& failing : moves(Tier::kDevice, 0, Tier::kHost, 8)) {
      failing.entry.key.bytes[1] = 1;
      batch.push_back(std::move(failing));
    }
    for (Move& more : moves(Tier::kDisk, 0, Tier::kDevice, 12)) batch.push_back(std::move(more));
    for (Move& more : moves(Tier::kDisk, 0, Tier::kHost, 16)) batch.push_back(std::move(more));
    for (Move& more : moves(Tier::kHost, 0, Tier::kDisk, 8)) batch.push_back(std::move(more));
    const std::vector<OperationId> all = ids(batch);
    begun += all.size();
    mover_->start(std::move(batch), {});
    ASSERT_EQ(logits_behind(4), expected_) << round;
    for (const OperationId id : all) {
      const MoveResult result = ends_.wait(id);
      if (std::find(loads.begin(), loads.end(), id) != loads.end()) {
        ASSERT_EQ(result, MoveResult::kDone);
      }
    }
  }
  EXPECT_EQ(ends_.count(), begun);
  const MoverStats stats = mover_->stats();
  EXPECT_EQ(stats.disk_load.failures_total, 40u);
  EXPECT_EQ(stats.prefetch.failures_total, 40u);
  EXPECT_EQ(stats.queued, 0u);
}

// The core's last deletions come while the thread is busy, directly before it is told to stop.
TEST_P(MoverTest, ChangesOfRecordsThatComeBeforeTheEndReachTheDisk) {
  constexpr std::uint32_t kChanges = 100;
  std::atomic<bool> copies{false};
  make_mover({.before_slice = [&](const Move&, std::uint32_t) {
    copies = true;
    return after(std::chrono::milliseconds(50));
  }});
  mover_->start({move(Tier::kDevice, 0, Tier::kHost, 4, 1)}, {});
  while (!copies) std::this_thread::yield();
  for (std::uint32_t slot = 0; slot < kChanges; ++slot) {
    RecordChange hole{.kind = RecordChange::Kind::kHole, .slot = SlotId(slot)};
    hole.entry.depth = 1 + slot;
    mover_->start({}, {hole});
  }
  for (std::uint32_t slot = 0; slot < kChanges; slot += 2) {
    // Also those that come with moves, which the end drops.
    mover_->start({move(Tier::kHost, 0, Tier::kDisk, 0, 2)},
                  {{.kind = RecordChange::Kind::kForgetHole, .slot = SlotId(slot)}});
  }
  mover_.reset();
  ASSERT_EQ(disk_.holes.size(), kChanges / 2);
  for (const auto& [slot, entry] : disk_.holes) {
    EXPECT_EQ(slot.value % 2, 1u);
    EXPECT_EQ(entry.depth, 1 + slot.value);
  }
}

// While loads come one behind the other, what is deleted goes from the disk all the same.
TEST_P(MoverTest, ChangesOfRecordsDoNotWaitForLoads) {
  std::promise<void> began, gate;
  std::shared_future<void> open = gate.get_future().share();
  std::uint64_t slices = 0, slices_before = UINT64_MAX;  // of loads; both hooks are the thread's
  make_mover({.before_slice =
                  [&, open](const Move& load, std::uint32_t) {
                    if (load.to == Tier::kDevice && slices++ == 0) {
                      began.set_value();
                      open.wait();
                    }
                    return Status();
                  }},
             {.change = [&](const RecordChange&) { slices_before = slices; }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  std::vector<Move> loads = moves(Tier::kHost, 4, Tier::kDevice, 8);
  const std::vector<OperationId> begun = ids(loads);
  for (Move& load : loads) load.together = loads.front().id == load.id ? begun[0] : begun[1];  // two batches
  mover_->start(std::move(loads), {});
  began.get_future().wait();
  mover_->start({}, {{.kind = RecordChange::Kind::kForget, .slot = SlotId(3)}});
  gate.set_value();
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  mover_.reset();
  EXPECT_EQ(slices_before, steps().front().size()) << "those of the step that was being brought";
}

// What was there before is nobody's any more: the core can't name it when its conversation is deleted.
TEST_P(MoverTest, OfASaveThatTheEndDropsTheSlotIsForgotten) {
  const std::uint64_t one_block = backend_->info().block_bytes;
  std::atomic<bool> begun{false}, ends{false};
  make_mover({.save_buffer_bytes = one_block}, {.write = [&](const BlockEntry& entry) {
               if (entry.key.bytes[0] < 10) return Status();
               begun = true;
               while (!ends) std::this_thread::yield();
               return after(std::chrono::milliseconds(50));
             }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 3));
  ASSERT_EQ(disk_.slots.size(), kBlocks * groups());
  std::vector<Move> saves = moves(Tier::kDevice, 0, Tier::kDisk, 3);
  for (Move& save : saves) save.entry.key.bytes[0] += 10;
  mover_->start(std::move(saves), {});
  while (!begun) std::this_thread::yield();  // the others wait for the first
  ends = true;
  mover_.reset();
  for (const auto& [place, slot] : disk_.slots)
    EXPECT_GT(slot.entry.key.bytes[0], 10) << "slot " << place.second.value << " has what was there before";
}

TEST(HostTier, RefusesWhatTheMachineDoesNotHave) {
  const auto model = make_model({0, 0});
  const auto backend = std::move(make_cpu_backend(model->spec, {.threads = 1})).value();
  SystemClock clock;
  MoverOptions options;
  options.host_blocks = {UINT32_MAX};
  const auto mover = Mover::make(std::move(options), *backend, clock, [](const MovesEnded&) {});
  ASSERT_FALSE(mover.ok());
  EXPECT_EQ(mover.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(mover.status().field(), "host_memory");
}

}  // namespace
}  // namespace loci
