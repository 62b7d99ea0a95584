// SPDX-License-Identifier: Apache-2.0
// The pools, case by case. Random worlds: block_pool_world_test.cc.
#include "loci/compute/cuda/block_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <thread>

#include "loci/base/thread_limit_testing.h"
#include "loci/compute/cuda/block_pool_testing.h"

namespace loci::cuda {
namespace {

TEST_F(BlockPoolTest, BeginsWithZeros) {
  for (std::uint32_t layer = 0; layer < 5; ++layer) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(read(SlotId(slot), layer), Bytes(slice_bytes()));
      EXPECT_TRUE(pool_->is_whole(pool_->group_of(layer), SlotId(slot)));
    }
  }
}

TEST_F(BlockPoolTest, RefusesWhatTheDeviceDoesNotHave) {
  const auto pool = std::move(BlockPool::make(device(), {{.layers = {0}}}, 8, 128)).value();
  const Status status = pool->allocate(0, UINT32_MAX);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.field(), "device_memory");
}

// Layers, slots, K before V, heads: where kernels look for them.
TEST_F(BlockPoolTest, SlicesLieWhereKernelsReadThem) {
  for (std::uint32_t layer = 0; layer < 5; ++layer) {
    const Bytes slice = random_bytes(slice_bytes());
    const SlotId slot(3);
    load(slot, layer, slice);
    ASSERT_TRUE(after_loads().ok());
    const LayerState state = pool_->layer(layer);
    const Memory out = pinned(state.head_bytes());
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      for (const bool value : {false, true}) {
        stream().copy(out.data(), value ? state.values(3, head) : state.keys(3, head), out.size());
        stream().synchronize();
        const auto from =
            slice.begin() + static_cast<std::ptrdiff_t>(((value ? kHeads : 0) + head) * out.size());
        EXPECT_TRUE(std::equal(out.data(), out.data() + out.size(), from))
            << layer << ' ' << head << ' ' << value;
      }
    }
  }
}

// More slices at once than there are buffers, each of which its caller overwrites at once.
TEST_F(BlockPoolTest, UnpinnedSlicesAreTheCallersAgain) {
  pool_.reset();
  make({{.layers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}}, 8, 256);
  std::vector<Bytes> wanted;
  Bytes slice;
  for (std::uint32_t layer = 0; layer < 10; ++layer) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      slice.assign(slice_bytes(), static_cast<std::byte>(layer * kSlots + slot + 1));
      load(SlotId(slot), layer, slice);
    }
  }
  slice.assign(slice_bytes(), std::byte{255});
  for (std::uint32_t layer = 0; layer < 10; ++layer) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(read(SlotId(slot), layer),
                Bytes(slice_bytes(), static_cast<std::byte>(layer * kSlots + slot + 1)));
    }
  }
}

TEST_F(BlockPoolTest, AFailureIsToldFromItsLayerOnAndUntilThePassWritesTheSlot) {
  for (std::uint32_t failed = 0; failed < layers(0); ++failed) {
    const SlotId slot(1), other(2);
    pool_->begin_fill(0, slot);
    EXPECT_FALSE(pool_->is_whole(0, slot));
    for (std::uint32_t i = 0; i < failed; ++i) {
      load(slot, pool_->groups()[0].layers[i], Bytes(slice_bytes()));
    }
    pool_->fill_failed(0, slot);
    for (std::uint32_t i = 0; i < layers(0); ++i) {
      const SlotId both[] = {other, slot};
      EXPECT_EQ(pool_->wait_layer(pool_->groups()[0].layers[i], both, stream()), i < failed);
      EXPECT_TRUE(pool_->wait_layer(pool_->groups()[0].layers[i], {both, 1}, stream()));
    }
    EXPECT_FALSE(pool_->is_whole(0, slot));
    pool_->set_whole(0, slot);
    EXPECT_TRUE(pool_->is_whole(0, slot));
    EXPECT_TRUE(pool_->wait_layer(pool_->groups()[0].layers.back(), {&slot, 1}, stream()));
  }
}

// One thread brings layers, slowly, and sometimes gives up; another issues passes that wait for them.
TEST_F(BlockPoolTest, PassesSleepUntilCopiesAreQueued) {
  const HostMemory host = std::move(pool_->allocate_host(4 * layers(0) * slice_bytes())).value();
  const Memory out = pinned(4 * slice_bytes());
  const std::vector<SlotId> slots{SlotId(4), SlotId(0), SlotId(7), SlotId(2)};
  for (int round = 0; round < 30; ++round) {
    const Bytes bytes = random_bytes(host.size());
    std::copy(bytes.begin(), bytes.end(), host.data());
    const auto bad_layer = static_cast<std::uint32_t>(random_.below(2 * layers(0)));
    for (const SlotId slot : slots) pool_->begin_fill(0, slot);
    std::jthread mover([&] {
      for (std::uint32_t i = 0; i < layers(0); ++i) {
        if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        std::vector<LoadPiece> pieces;
        for (std::size_t s = 0; s < slots.size(); ++s) {
          pieces.push_back({slots[s], {host.data() + (s * layers(0) + i) * slice_bytes(), slice_bytes()}});
        }
        if (i == bad_layer) break;
        pool_->load(0, {i, i + 1}, pieces, BytesHeld::kUntilCopied);
      }
      if (bad_layer < layers(0)) {
        for (const SlotId slot : slots) pool_->fill_failed(0, slot);
      }
    });
    for (std::uint32_t i = 0; i < layers(0); ++i) {
      const std::uint32_t layer = pool_->groups()[0].layers[i];
      const bool comes = pool_->wait_layer(layer, slots, stream());
      ASSERT_EQ(comes, i < bad_layer);
      if (!comes) continue;
      for (std::size_t s = 0; s < slots.size(); ++s) {
        stream().copy(out.data() + s * slice_bytes(), place(slots[s], layer), slice_bytes());
      }
      stream().synchronize();
      for (std::size_t s = 0; s < slots.size(); ++s) {
        ASSERT_EQ(std::memcmp(out.data() + s * slice_bytes(),
                              bytes.data() + (s * layers(0) + i) * slice_bytes(), slice_bytes()),
                  0);
      }
    }
    mover.join();
    ASSERT_TRUE(after_loads().ok());
    for (const SlotId slot : slots) EXPECT_EQ(pool_->is_whole(0, slot), bad_layer >= layers(0));
  }
}

// Also where the device refused to project: kernels that were queued before read the rows.
TEST_F(BlockPoolTest, WhatASlotGetsNextWaitsForKernelsThatReadItsHiddenStates) {
  pool_.reset();
  make({{.layers = {0, 1}}}, kHeads, kDim);
  const SlotId slot(1);
  const Memory out = pinned(slice_bytes());
  for (std::uint32_t round = 0; round < 100; ++round) {
    const Bytes rows = random_bytes(slice_bytes() / 2);
    pool_->begin_fill(0, slot);
    pool_->load_hidden(0, 0, std::vector<HiddenPiece>{{slot, 32, rows}}, BytesHeld::kDuringCall);
    ASSERT_TRUE(pool_->wait_layer(0, {&slot, 1}, stream()));
    ASSERT_EQ(pool_->claim_hidden(0, slot), 0u);
    stream().copy(out.data(), place(slot, 0), rows.size());
    const Ticket ticket = pool_->note_projections(stream());
    pool_->projection_refused(0, slot, ticket);
    ASSERT_EQ(pool_->claim_hidden(0, slot), 0u) << "it can be claimed again";
    pool_->projection_refused(0, slot, ticket);
    pool_->begin_fill(0, slot);
    load(slot, 0, random_bytes(slice_bytes()));
    ASSERT_TRUE(after_loads().ok());
    stream().synchronize();
    pool_->projections_done(ticket);
    ASSERT_EQ(std::memcmp(out.data(), rows.data(), rows.size()), 0) << round;
  }
}

TEST_F(BlockPoolTest, WithoutAThreadToTellWhoAsksWaits) {
  if (!simulated()) GTEST_SKIP() << "a driver needs the memory that the test withholds";
  const auto told_on = [&] {
    std::thread::id thread;
    std::latch left(1);
    pool_->after_loads([&](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.message();
      thread = std::this_thread::get_id();
      left.count_down();
    });
    left.wait();
    return thread;
  };
  const Bytes slice = random_bytes(slice_bytes());
  load(SlotId(3), 0, slice);
  {
    const ThreadLimit limit(0);
    EXPECT_EQ(told_on(), std::this_thread::get_id());
  }
  EXPECT_EQ(read(SlotId(3), 0), slice);
  EXPECT_NE(told_on(), std::this_thread::get_id());
}

TEST_F(BlockPoolTest, ALostDeviceEndsAll) {
  expect_lost();
  const HostMemory host = std::move(pool_->allocate_host(layers(0) * slice_bytes())).value();
  const LoadPiece piece{SlotId(1), {host.data(), host.size()}};
  pool_->begin_fill(0, SlotId(1));
  device().note(Status(StatusCode::kUnavailable, "the device is lost"));
  pool_->load(0, {0, layers(0)}, {&piece, 1}, BytesHeld::kUntilCopied);
  EXPECT_TRUE(pool_->wait_layer(3, {&piece.slot, 1}, stream()));
  const SavePiece back{SlotId(1), {host.data(), host.size()}};
  pool_->save(0, {0, layers(0)}, {&back, 1}, BytesHeld::kUntilCopied);
  for (int i = 0; i < 100; ++i) load(SlotId(2), 0, Bytes(slice_bytes()));
  read(SlotId(2), 0);
  EXPECT_EQ(after_loads().code(), StatusCode::kUnavailable);
  EXPECT_EQ(after_saves().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(pool_->allocate_host(4096).ok());
}

}  // namespace
}  // namespace loci::cuda
