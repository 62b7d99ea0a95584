// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the pools: a pool of two groups, whose slices are read and written by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/backend_testing.h"
#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/check/device_testing.h"

namespace loci::cuda {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t kHeads = 2, kDim = 8;
inline constexpr std::uint32_t kSlots = 10;
inline constexpr std::uint32_t kHostBlocks = 8;

class BlockPoolTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    make({{.layers = {0, 2, 3}}, {.layers = {1, 4}, .window = 64}}, kHeads, kDim);
  }
  void TearDown() override {
    pool_.reset();
    DeviceTest::TearDown();
  }
  void make(std::vector<LayerGroup> groups, std::uint32_t heads, std::uint32_t dim) {
    pool_ = std::move(BlockPool::make(device(), std::move(groups), heads, dim)).value();
    for (std::uint32_t g = 0; g < pool_->groups().size(); ++g) ASSERT_TRUE(pool_->allocate(g, kSlots).ok());
  }

  std::uint32_t layers(std::uint32_t group) const {
    return static_cast<std::uint32_t>(pool_->groups()[group].layers.size());
  }
  std::uint64_t slice_bytes() const { return pool_->groups()[0].layer_slice_bytes; }
  std::byte* place(SlotId slot, std::uint32_t layer) const {
    const LayerState state = pool_->layer(layer);
    return state.keys(slot.value, 0);
  }
  Bytes random_bytes(std::uint64_t count) {
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_.below(256));
    return bytes;
  }
  Bytes read(SlotId slot, std::uint32_t layer) {
    Bytes bytes(slice_bytes());
    const LayerPlace place = place_of(pool_->groups(), layer);
    const SavePiece piece{slot, bytes};
    pool_->save(place.group, {place.index, place.index + 1}, {&piece, 1}, BytesHeld::kDuringCall);
    return bytes;
  }
  // For bytes that go back to the caller.
  void load(SlotId slot, std::uint32_t layer, const Bytes& slice) {
    const LayerPlace place = place_of(pool_->groups(), layer);
    const LoadPiece piece{slot, slice};
    pool_->load(place.group, {place.index, place.index + 1}, {&piece, 1}, BytesHeld::kDuringCall);
  }
  Status after_loads() {
    Status told;
    std::latch left(1);
    pool_->after_loads([&](const Status& status) {
      told = status;
      left.count_down();
    });
    left.wait();
    return told;
  }
  Status after_saves() {
    Status told;
    std::latch left(1);
    pool_->after_saves([&](const Status& status) {
      told = status;
      left.count_down();
    });
    left.wait();
    return told;
  }

  Random random_{20};
  std::unique_ptr<BlockPool> pool_;
};

}  // namespace loci::cuda
