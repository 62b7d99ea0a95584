// SPDX-License-Identifier: Apache-2.0
// The state's memory on the device: for each layer group a pool of slots (block_layout.h), and which layers
// of each slot have arrived. It also copies state into slots and out of them, on streams of its own.
//
// Layers are numbered as in the model; a slot belongs to the pool of its layer's group.
//
// Order. A load is queued on the stream of loads, and its slot notes the ticket of each layer. A pass that
// reads the layer makes its own stream wait for that ticket (wait_layer()); the host sleeps only if the copy
// has not even been queued. Nothing else orders copies and passes, so callers must keep the rules of
// backend.h: while a slot is loaded only passes that wait for it use it. A save reads what passes that have
// ended have written, or what loads bring; for those it waits on the device.
//
// A layer may come as hidden states (HCache §3.2). They lie where its slice will be, until a pass projects
// them on its stream, or a mover does (cuda_hidden_projector.h). Whoever projects claims the layer first. A
// pass's projections have tickets, too: copies out of a slot, and those that bring the slot's next block,
// wait for them on the device. Layers are projected in order.
//
// No kernel gathers or scatters anything here: a slot is one piece of memory, and so is one layer of it, both
// in host memory and on the device. Blocks that lie apart are pieces of one call.
//
// Movers' calls and wait_layer() are thread-safe; passes are issued by one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

// The host's side of a load of hidden states: a layer of one block.
struct HiddenPiece {
  SlotId slot;
  std::uint32_t position = 0;       // of the block's first token
  std::span<const std::byte> rows;  // [kBlockTokens][width], less than the layer's slice
};

class BlockPool {
 public:
  // BackendInfo::copy_bytes: shorter copies do not fill the link.
  static constexpr std::uint64_t kCopyBytes = 128u << 10;

  // The sizes in `groups` are filled in here. Errors: kResourceExhausted (pinned buffers).
  static Result<std::unique_ptr<BlockPool>> make(const Device& device, std::vector<LayerGroup> groups,
                                                 std::uint32_t kv_heads, std::uint32_t head_dim);

  // Makes a group's pool of `count` slots, zeroed; called once for each group. Errors: kResourceExhausted
  // naming device_memory.
  Status allocate(std::uint32_t group, std::uint32_t count);

  const std::vector<LayerGroup>& groups() const { return groups_; }  // with sizes
  std::uint32_t group_of(std::uint32_t layer) const { return layers_[layer].group; }
  std::uint32_t count(std::uint32_t group) const { return pools_[group].count; }
  // The layer's state, as kernels take it.
  LayerState layer(std::uint32_t layer) const;

  // --- passes ---

  // True if all of the slot has arrived, so that no pass need wait for it.
  bool is_whole(std::uint32_t group, SlotId slot) const;
  // Says that a pass writes the slot from its beginning, which clears an earlier fill or its failure.
  void set_whole(std::uint32_t group, SlotId slot);
  // Makes all later work of `stream` wait for the layer's copies into these slots. Sleeps until all copies
  // are queued. False: one of them will not come, or not in time; then `stream` waits for none.
  bool wait_layer(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream, Patience& patience);
  bool wait_layer(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream) {
    Patience for_ever;
    return wait_layer(layer, slots, stream, for_ever);
  }

  // --- projecting: passes, and movers that save ---

  // Claims the slot's first layer that still holds hidden states, if `layer` is not before it. The caller
  // must then make its slice of it, and call projected() or projection_refused(). Absent: `layer` holds a
  // slice, or has not arrived. Sleeps while somebody else projects a layer.
  std::optional<std::uint32_t> claim_hidden(std::uint32_t layer, SlotId slot);
  // Position of the first token of a block that came as hidden states.
  std::uint32_t position(std::uint32_t group, SlotId slot) const;
  // The event behind the layer's copies into a slot whose layer was claimed; null: they are done.
  std::shared_ptr<Event> arrival_of(std::uint32_t layer, SlotId slot) const;
  // A ticket for what has been queued on the stream of passes. Only for the thread that issues passes.
  Ticket note_projections(Stream& stream);
  // Says that the claimed layer's slice will be there when the ticket is done.
  void projected(std::uint32_t layer, SlotId slot, Ticket ticket);
  // Says that the claimed layer still holds hidden states, because the device refused a kernel; others may
  // claim it. Kernels that read them are done when the ticket is.
  void projection_refused(std::uint32_t layer, SlotId slot, Ticket ticket);
  // Says that these tickets are done.
  void projections_done(Ticket ticket) { projections_.retire(ticket); }

  // --- movers, as backend.h says ---

  Result<HostMemory> allocate_host(std::uint64_t bytes) const;
  void begin_fill(std::uint32_t group, SlotId slot);
  void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces, BytesHeld held);
  // The slots' layer `index`, counted in the group, comes as hidden states. After begin_fill() alone.
  void load_hidden(std::uint32_t group, std::uint32_t index, std::span<const HiddenPiece> pieces,
                   BytesHeld held);
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
    // By slot: the number of layers whose copies are queued, that of layers that came as hidden states and
    // were projected since, and flags (block_pool.cc).
    std::unique_ptr<std::atomic<std::uint32_t>[]> states;
    // By slot: position(), and the ticket of the last projection that a pass has queued.
    std::unique_ptr<std::uint32_t[]> positions;
    std::unique_ptr<std::atomic<Ticket>[]> projections;
    // [slot][layer of the group]: the ticket of the last copy into it. Read after `states`.
    std::unique_ptr<std::atomic<Ticket>[]> tickets;
  };

  BlockPool(const Device& device, std::vector<LayerGroup> groups, std::uint32_t kv_heads,
            std::uint32_t head_dim);

  std::uint32_t layers_of(std::uint32_t group) const {
    return static_cast<std::uint32_t>(groups_[group].layers.size());
  }
  std::byte* slice(std::uint32_t group, SlotId slot, std::uint32_t index) const;
  std::atomic<std::uint32_t>& state(std::uint32_t group, SlotId slot) const;
  std::atomic<Ticket>& ticket(std::uint32_t group, SlotId slot, std::uint32_t index) const;
  void check_piece(std::uint32_t group, SlotId slot, LayerRange layers, std::size_t bytes) const;
  // Copies through pinned buffers, a slice at a time, in the layers' order. A save waits for its copies.
  void load_staged(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces);
  void save_staged(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces);
  // Notes that the slot's layers before `end`, counted in the group, are queued.
  void layers_queued(std::uint32_t group, SlotId slot, std::uint32_t end);
  // The same of one layer that comes as hidden states.
  void hidden_queued(std::uint32_t group, const HiddenPiece& piece, std::uint32_t index, Ticket queued);
  // The last projection of any of these slots.
  template <class Piece>
  Ticket projections_of(std::uint32_t group, std::span<const Piece> pieces) const;

  const Device& device_;
  const std::uint32_t kv_heads_;
  const std::uint32_t head_dim_;
  const std::uint64_t slice_bytes_;
  std::vector<LayerGroup> groups_;
  std::vector<Layer> layers_;  // by the model's layer
  std::vector<Pool> pools_;    // by group
  // Loads and saves use the two directions of the link. Reads are saves that somebody waits for.
  CopyStream loads_, saves_, reads_;
  StagingRing staged_loads_, staged_reads_;
  Tickets projections_;            // of passes
  Ticket projections_queued_ = 0;  // only for the thread that issues passes
  // The stream of the pass that waited last; only for the thread that issues passes.
  const Stream* held_by_ = nullptr;
  Ticket held_ = 0;
};

}  // namespace loci::cuda
