// SPDX-License-Identifier: Apache-2.0
// Shared by tests that use backends: base classes for fake backends, and functions that move one layer of a
// block, named by its number in the model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/backend.h"

namespace loci {

// A backend with the given `info` that stores, computes and moves nothing. Tests override what they need.
class EmptyBackend : public Backend {
 public:
  explicit EmptyBackend(BackendInfo info) : info_(std::move(info)) {}

  const BackendInfo& info() const override { return info_; }
  Status health() const override { return {}; }
  Status allocate_blocks(std::uint32_t, std::uint32_t) override { return {}; }
  void give_back(std::uint32_t, SlotId) override {}
  Result<HostMemory> allocate_host(std::uint64_t bytes) override { return HostMemory::map(bytes); }
  void begin(Pass) override {}
  void finish(std::vector<SpanResult>& results) override { results.clear(); }
  Projected projected() const override { return {}; }
  void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) override {
    for (std::uint32_t i = 0; i < count; ++i) task(i);
  }
  void begin_fill(std::uint32_t, SlotId) override {}
  void load(std::uint32_t, LayerRange, std::span<const LoadPiece>, BytesHeld) override {}
  void load_hidden(std::uint32_t, SlotId, std::uint32_t, std::uint32_t, std::span<const std::byte>) override {
  }
  void fill_failed(std::uint32_t, SlotId) override {}
  void save(std::uint32_t, LayerRange, std::span<const SavePiece>, BytesHeld) const override {}
  void after_loads(Copied done) const override { done({}); }
  void after_saves(Copied done) const override { done({}); }
  void rotate_keys(std::uint32_t, std::int32_t, std::span<std::byte>) const override {}
  void clear_tokens(std::uint32_t, std::uint32_t, std::span<std::byte>) const override {}
  void project(std::uint32_t, std::uint32_t, std::span<const std::byte>,
               std::span<std::byte>) const override {}

 private:
  BackendInfo info_;
};

// Passes every call on to another backend, which must outlive it. Its info is the other's, except where a
// test changes it.
class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(Backend& inner) : inner_(inner), info_(inner.info()) {}

  const BackendInfo& info() const override { return info_; }
  Status health() const override { return inner_.health(); }
  Status allocate_blocks(std::uint32_t group, std::uint32_t count) override {
    return inner_.allocate_blocks(group, count);
  }
  void give_back(std::uint32_t group, SlotId slot) override { inner_.give_back(group, slot); }
  Result<HostMemory> allocate_host(std::uint64_t bytes) override { return inner_.allocate_host(bytes); }
  void begin(Pass pass) override { inner_.begin(std::move(pass)); }
  void finish(std::vector<SpanResult>& results) override { inner_.finish(results); }
  Projected projected() const override { return inner_.projected(); }
  void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) override {
    inner_.run_tasks(count, task);
  }
  void begin_fill(std::uint32_t group, SlotId slot) override { inner_.begin_fill(group, slot); }
  void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
            BytesHeld held) override {
    inner_.load(group, layers, pieces, held);
  }
  void load_hidden(std::uint32_t group, SlotId slot, std::uint32_t layer, std::uint32_t position,
                   std::span<const std::byte> rows) override {
    inner_.load_hidden(group, slot, layer, position, rows);
  }
  void fill_failed(std::uint32_t group, SlotId slot) override { inner_.fill_failed(group, slot); }
  void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
            BytesHeld held) const override {
    inner_.save(group, layers, pieces, held);
  }
  void after_loads(Copied done) const override { inner_.after_loads(std::move(done)); }
  void after_saves(Copied done) const override { inner_.after_saves(std::move(done)); }
  void rotate_keys(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const override {
    inner_.rotate_keys(layer, delta, slice);
  }
  void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const override {
    inner_.clear_tokens(layer, first, slice);
  }
  void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
               std::span<std::byte> slice) const override {
    inner_.project(layer, position, rows, slice);
  }

 protected:
  Backend& inner_;
  BackendInfo info_;
};

// The table as if the block had the slot.
inline void put_slot(BlockTable& table, std::size_t block, SlotId slot) {
  std::vector<SlotId> slots(table.blocks.begin(), table.blocks.end());
  slots.at(block) = slot;
  table.blocks = slots;
}
// The table without the slots of its first blocks.
inline void drop_slots(BlockTable& table, std::size_t blocks) {
  std::vector<SlotId> slots(table.blocks.begin(), table.blocks.end());
  std::fill_n(slots.begin(), blocks, kNoSlot);
  table.blocks = slots;
}

// Where a layer of the model is: its group, and its place in the group.
struct LayerPlace {
  std::uint32_t group = 0;
  std::uint32_t index = 0;
};
inline LayerPlace place_of(const std::vector<LayerGroup>& groups, std::uint32_t layer) {
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    const std::vector<std::uint32_t>& layers = groups[group].layers;
    const auto found = std::find(layers.begin(), layers.end(), layer);
    if (found != layers.end()) return {group, static_cast<std::uint32_t>(found - layers.begin())};
  }
  LOCI_CHECK(false, "each layer of the model is in one group");
}

// Loads one layer's slice of the block in the slot. The earlier layers of its group must have been loaded.
inline void load_slice(Backend& backend, SlotId slot, std::uint32_t layer, std::span<const std::byte> slice) {
  const auto [group, index] = place_of(backend.info().groups, layer);
  const LoadPiece piece{slot, slice};
  backend.load(group, {index, index + 1}, {&piece, 1}, BytesHeld::kDuringCall);
}
inline void save_slice(const Backend& backend, SlotId slot, std::uint32_t layer, std::span<std::byte> slice) {
  const auto [group, index] = place_of(backend.info().groups, layer);
  const SavePiece piece{slot, slice};
  backend.save(group, {index, index + 1}, {&piece, 1}, BytesHeld::kDuringCall);
}

}  // namespace loci
