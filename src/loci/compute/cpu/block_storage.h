// SPDX-License-Identifier: Apache-2.0
// The pools of blocks in memory, one a group of layers, and what has arrived of each block. A block's part
// in a group is [layer of the group][slice]; state_layout.h says how a slice lies.
//
// Layers are those of the model; a slot is one of its layer's group.
//
// Movers (begin_fill() .. fill_failed()) may be any threads; they and the running pass meet at one
// atomic word a slot: bytes written before layer_arrived() are seen after await_layer(). What happens to
// a slot that nobody fills is ordered by the pass alone.
//
// A layer may come as hidden states: they lie where its slice will be, until who needs the layer has claimed
// it and projected them (cpu/hidden_projector.h). Layers are projected in order.
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
#include "loci/compute/cpu/state_layout.h"
#include "loci/compute/patience.h"

namespace loci::cpu {

class BlockStorage {
 public:
  // `groups` without sizes.
  BlockStorage(std::vector<LayerGroup> groups, const StateLayout& layout);

  // Zeroed. Errors: kResourceExhausted.
  Status allocate(std::uint32_t group, std::uint32_t count);

  // The slot's whole pages go back to the system, and are zeros when they are used again.
  void give_back(std::uint32_t group, SlotId slot) const;

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
  void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice);
  void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const;
  void layer_arrived(SlotId slot, std::uint32_t layer);
  void fill_failed(std::uint32_t group, SlotId slot);

  // Of a block whose first token is at `position`; the layer has come by that.
  void write_hidden(SlotId slot, std::uint32_t layer, std::uint32_t position,
                    std::span<const std::byte> rows);
  // The slot's first layer that is hidden states still, if `layer` is not before it: the caller is to put its
  // slice in their place and to call projected(). Absent: `layer` is a slice, or has not come. Sleeps while
  // another thread projects one.
  std::optional<std::uint32_t> claim_hidden(SlotId slot, std::uint32_t layer);
  void projected(SlotId slot, std::uint32_t layer);
  std::uint8_t* slice(SlotId slot, std::uint32_t layer) const;
  // Of the slot's first token, where it came as hidden states.
  std::uint32_t position(SlotId slot, std::uint32_t layer) const;

  // Sleeps until `layer` of the slot has arrived, in either form; false: it will not, or not in time.
  bool await_layer(SlotId slot, std::uint32_t layer, Patience& patience) const;
  bool await_layer(SlotId slot, std::uint32_t layer) const {
    Patience for_ever;
    return await_layer(slot, layer, for_ever);
  }
  bool is_whole(std::uint32_t group, SlotId slot) const;
  // The pass writes the slot from its beginning: an earlier fill and its failure are history.
  void set_whole(std::uint32_t group, SlotId slot);

 private:
  struct Layer {
    std::uint32_t group = 0;
    std::uint32_t index = 0;  // in the group
  };
  struct Pool {
    std::uint32_t count = 0;
    Buffer blocks;
    // Layers whose slice is there, layers that came as hidden states, and flags (block_storage.cc).
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
};

}  // namespace loci::cpu
