// SPDX-License-Identifier: Apache-2.0
// The pools of blocks in memory, one for each layer group, and which layers of each block have arrived. A
// block's part in a group is [layer of the group][slice]; state_layout.h has the layout of a slice.
//
// Layers are numbered as in the model; a slot belongs to the pool of its layer's group.
//
// Any threads may be movers (begin_fill() to fill_failed()). They share one atomic word for each slot with
// the running pass: bytes written before layer_arrived() are seen after await_layer(). If nobody fills a
// slot, only the pass orders accesses to it.
//
// A layer may come as hidden states. They lie where its slice will be, until the thread that needs the layer
// claims and projects them (cpu/hidden_projector.h). Layers are projected in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/huge_pages.h"
#include "loci/compute/cpu/state_layout.h"
#include "loci/compute/patience.h"

namespace loci::cpu {

class BlockStorage {
 public:
  // The sizes in `groups` are filled in here.
  BlockStorage(std::vector<LayerGroup> groups, const StateLayout& layout);

  // Makes a group's pool of `count` slots, zeroed. Errors: kResourceExhausted.
  Status allocate(std::uint32_t group, std::uint32_t count);

  // Gives the slot's whole pages back to the system; they are zeros when they are used again. The first call
  // starts a thread that joins pages into huge ones once they are in use again (huge_pages.h). Thread-safe.
  void give_back(std::uint32_t group, SlotId slot);

  const std::vector<LayerGroup>& groups() const { return groups_; }  // with sizes
  std::uint32_t group_of(std::uint32_t layer) const { return layers_[layer].group; }
  std::uint32_t count(std::uint32_t group) const { return pools_[group].count; }

  const StateLayout& layout() const { return layout_; }
  HeadState head(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const {
    return layout_.head(slice(slot, layer), kv_head);
  }

  // Copies one layer of the first `tokens` tokens.
  void copy_tokens(SlotId from, SlotId to, std::uint32_t layer, std::uint32_t tokens) const;

  void begin_fill(std::uint32_t group, SlotId slot);
  void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice, CacheUse use);
  void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const;
  // The memory of layers of a group (counted in it), whose slices lie one behind the other.
  std::span<const std::byte> view(std::uint32_t group, SlotId slot, LayerRange layers) const;
  void layer_arrived(SlotId slot, std::uint32_t layer);
  void fill_failed(std::uint32_t group, SlotId slot);

  // Stores a layer's hidden states; the layer has then arrived. `position`: of the block's first token.
  void write_hidden(SlotId slot, std::uint32_t layer, std::uint32_t position,
                    std::span<const std::byte> rows);
  // Claims the slot's first layer that still holds hidden states, if `layer` is not before it. The caller
  // must then replace them by the slice and call projected(). Absent: `layer` holds a slice, or has not
  // arrived. Sleeps while another thread projects a layer.
  std::optional<std::uint32_t> claim_hidden(SlotId slot, std::uint32_t layer);
  void projected(SlotId slot, std::uint32_t layer);
  std::uint8_t* slice(SlotId slot, std::uint32_t layer) const;
  // Position of the slot's first token, if the layer came as hidden states.
  std::uint32_t position(SlotId slot, std::uint32_t layer) const;

  // True if layers of the slot came as hidden states since its fill began.
  bool comes_hidden(SlotId slot, std::uint32_t layer) const;
  // True if `layer` of the slot has come as hidden states and is not projected.
  bool is_hidden(SlotId slot, std::uint32_t layer) const;
  // True if await_layer() would sleep.
  bool is_awaited(SlotId slot, std::uint32_t layer) const;
  // Sleeps until `layer` of the slot has arrived in either form. False: it will not arrive, or not in time.
  bool await_layer(SlotId slot, std::uint32_t layer, Patience& patience) const;
  bool await_layer(SlotId slot, std::uint32_t layer) const {
    Patience for_ever;
    return await_layer(slot, layer, for_ever);
  }
  bool is_whole(std::uint32_t group, SlotId slot) const;
  // Says that the pass writes the slot from its beginning, which clears an earlier fill or its failure.
  void set_whole(std::uint32_t group, SlotId slot);

 private:
  struct Layer {
    std::uint32_t group = 0;
    std::uint32_t index = 0;  // index in the group
  };
  struct Pool {
    std::uint32_t count = 0;
    Buffer blocks;
    std::unique_ptr<HugePages> pages;  // of the blocks
    // By slot: the number of layers whose slice is there, that of layers that came as hidden states, and
    // flags (block_storage.cc).
    std::unique_ptr<std::atomic<std::uint32_t>[]> states;
    std::unique_ptr<std::uint32_t[]> positions;  // position()
  };

  std::uint32_t layers_of(std::uint32_t group) const {
    return static_cast<std::uint32_t>(groups_[group].layers.size());
  }
  void check_slice(SlotId slot, std::uint32_t layer, std::size_t bytes) const;
  std::atomic<std::uint32_t>& state(std::uint32_t group, SlotId slot) const;

  const StateLayout layout_;
  std::vector<LayerGroup> groups_;
  std::vector<Layer> layers_;  // by the model's layer
  std::vector<Pool> pools_;    // by group
  PageJoiner joiner_;          // of the pools' pages
};

}  // namespace loci::cpu
