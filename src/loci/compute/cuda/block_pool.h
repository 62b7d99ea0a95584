// SPDX-License-Identifier: Apache-2.0
// The state's memory on the device: for each group of layers a pool of slots (block_layout.h), what has
// arrived of each slot, and the copies that bring and take state, on streams of their own.
//
// Layers are those of the model; a slot is one of its layer's group.
//
// Order. A load is queued on the stream of loads and its slot told the ticket, layer by layer; a pass that
// reads the layer makes its own stream wait for that ticket (wait_layer()), and the host sleeps only where
// the copy has not even been queued. Nothing else orders copies and passes: who moves state holds to
// backend.h's rules (what a load writes nobody uses but passes that wait for it; what a save reads was
// written by passes that have ended, or brought by loads, which it waits for on the device).
//
// Nothing here is gathered or scattered by kernels: a slot is one piece, and so is one layer of it, in host
// memory as on the device; blocks that lie apart are pieces of one call.
//
// Movers' calls and wait_layer() are thread-safe; passes are issued by one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/compute/cuda/block_layout.h"
#include "loci/compute/cuda/copies.h"
#include "loci/compute/cuda/copies_staging.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/patience.h"

namespace loci::cuda {

class BlockPool {
 public:
  // BackendInfo::copy_bytes: shorter copies do not fill the link.
  static constexpr std::uint64_t kCopyBytes = 128u << 10;

  // `groups` without sizes. Errors: kResourceExhausted (pinned buffers).
  static Result<std::unique_ptr<BlockPool>> make(const Device& device, std::vector<LayerGroup> groups,
                                                 std::uint32_t kv_heads, std::uint32_t head_dim);

  // Slots of a group, zeroed; once. Errors: kResourceExhausted naming device_memory.
  Status allocate(std::uint32_t group, std::uint32_t count);

  const std::vector<LayerGroup>& groups() const { return groups_; }  // with sizes
  std::uint32_t group_of(std::uint32_t layer) const { return layers_[layer].group; }
  std::uint32_t count(std::uint32_t group) const { return pools_[group].count; }
  // For kernels.
  LayerState layer(std::uint32_t layer) const;

  // --- passes ---

  // All of the slot is there: no pass need wait for it.
  bool is_whole(std::uint32_t group, SlotId slot) const;
  // A pass writes the slot from its beginning: an earlier fill and its failure are history.
  void set_whole(std::uint32_t group, SlotId slot);
  // What `stream` does from here on waits for the layer's copies into these slots. Sleeps until all are
  // queued. False: one of them will not come, or not in time, and nothing is waited for.
  bool wait_layer(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream, Patience& patience);
  bool wait_layer(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream) {
    Patience for_ever;
    return wait_layer(layer, slots, stream, for_ever);
  }

  // --- movers, as backend.h says ---

  Result<HostMemory> allocate_host(std::uint64_t bytes) const;
  void begin_fill(std::uint32_t group, SlotId slot);
  void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces, BytesHeld held);
  void fill_failed(std::uint32_t group, SlotId slot);
  void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces, BytesHeld held);
  void after_loads(Copied done) { loads_.when_done(std::move(done)); }
  void after_saves(Copied done) { saves_.when_done(std::move(done)); }

 private:
  struct Layer {
    std::uint32_t group = 0;
    std::uint32_t index = 0;  // in the group
  };
  struct Pool {
    std::uint32_t count = 0;
    Memory blocks;
    // By slot: layers whose copies are queued, kFailed, kSettled.
    std::unique_ptr<std::atomic<std::uint32_t>[]> states;
    // [slot][layer of the group]: of the copy that brought it last. Read behind `states`.
    std::unique_ptr<std::atomic<CopyTicket>[]> tickets;
  };

  BlockPool(const Device& device, std::vector<LayerGroup> groups, std::uint32_t kv_heads,
            std::uint32_t head_dim);

  std::uint32_t layers_of(std::uint32_t group) const {
    return static_cast<std::uint32_t>(groups_[group].layers.size());
  }
  std::byte* slice(std::uint32_t group, SlotId slot, std::uint32_t index) const;
  std::atomic<std::uint32_t>& state(std::uint32_t group, SlotId slot) const;
  std::atomic<CopyTicket>& ticket(std::uint32_t group, SlotId slot, std::uint32_t index) const;
  void check_piece(std::uint32_t group, SlotId slot, LayerRange layers, std::size_t bytes) const;
  // Through pinned buffers, a slice at a time, in the layers' order; a save waits for its copies.
  void load_staged(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces);
  void save_staged(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces);
  // The slot's layers of the group before `end` are queued.
  void layers_queued(std::uint32_t group, SlotId slot, std::uint32_t end);

  const Device& device_;
  const std::uint32_t kv_heads_;
  const std::uint32_t head_dim_;
  const std::uint64_t slice_bytes_;
  std::vector<LayerGroup> groups_;
  std::vector<Layer> layers_;  // by the model's layer
  std::vector<Pool> pools_;    // by group
  // Loads and saves use the link's two directions; reads are those that somebody waits for.
  CopyStream loads_, saves_, reads_;
  StagingRing staged_loads_, staged_reads_;
  // The last wait of a pass; of the thread that issues them.
  const Stream* held_by_ = nullptr;
  CopyTicket held_ = 0;
};

}  // namespace loci::cuda
