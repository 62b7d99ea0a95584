// SPDX-License-Identifier: Apache-2.0
// Finds which blocks that a pass reads have yet to arrive, and what that means for blocks that it writes. It
// is the same on every processor, over the processor's own pools of blocks (cpu/block_storage.h,
// cuda/block_pool.h).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <vector>

#include "loci/base/ids.h"
#include "loci/compute/backend.h"

namespace loci {

template <class T>
concept ArrivingBlocks = requires(T& blocks, std::uint32_t group, SlotId slot) {
  { blocks.groups() } -> std::same_as<const std::vector<LayerGroup>&>;
  { blocks.is_whole(group, slot) } -> std::same_as<bool>;
  blocks.set_whole(group, slot);
  blocks.begin_fill(group, slot);
  blocks.fill_failed(group, slot);
};

// A block that was not whole when the pass began, and a span that reads it.
struct PassArrival {
  std::uint32_t span = 0;
  std::uint32_t group = 0;
  SlotId slot;
  std::uint32_t computed_layers = 0;  // written by the pass itself: layers [0, computed_layers)

  // True if the span waits for the block before `layer`, which belongs to `layer_group`.
  bool awaited_by(const Pass& pass, std::uint32_t layer, std::uint32_t layer_group) const {
    return group == layer_group && layer >= computed_layers && layer < pass.spans[span].layers.end;
  }
};

// Adds the arrivals of group `g`. Blocks that the pass writes from their beginning, in all layers, become
// whole.
template <ArrivingBlocks Blocks>
void find_arrivals(const Pass& pass, std::uint32_t g, Blocks& blocks, std::vector<PassArrival>& arrivals) {
  const LayerGroup& group = blocks.groups()[g];
  // By slot: how many layers a span writes from the block's first token on.
  std::map<std::uint32_t, std::uint32_t> computed;
  for (const Span& span : pass.spans) {
    const BlockTable& table = span.tables[g];
    const std::uint32_t begin = std::max(span.position, table.write_from);
    const std::uint32_t end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    for (std::uint32_t i = (begin + kBlockTokens - 1) / kBlockTokens; i * kBlockTokens < end; ++i) {
      std::uint32_t& depth = computed[table.blocks[i].value];
      depth = std::max(depth, span.layers.end);
    }
  }
  for (const auto& [slot, depth] : computed) {
    if (depth > group.layers.back()) blocks.set_whole(g, SlotId(slot));
  }
  for (std::uint32_t i = 0; i < pass.spans.size(); ++i) {
    const Span& span = pass.spans[i];
    const std::uint32_t end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    const std::uint32_t first = first_visible(group.window, span.position) / kBlockTokens;
    for (std::uint32_t block = first; block * kBlockTokens < end; ++block) {
      const SlotId slot = span.tables[g].blocks[block];
      if (blocks.is_whole(g, slot)) continue;
      const auto found = computed.find(slot.value);
      arrivals.push_back({i, g, slot, found == computed.end() ? 0 : found->second});
    }
  }
}

// Called once for each pass, before its first layer. `await(slot, layer)` waits for a layer of a slot; false:
// it will not come. `arrivals` gets the arrivals of all groups.
template <ArrivingBlocks Blocks, std::predicate<SlotId, std::uint32_t> Await>
void mark_whole_blocks(const Pass& pass, Blocks& blocks, const Await& await,
                       std::vector<PassArrival>& arrivals) {
  for (const BlockCopy& copy : pass.copies) {
    // All of `from` is needed now; a failure passes on to what is copied.
    if (await(copy.from, blocks.groups()[copy.group].layers.back())) {
      blocks.set_whole(copy.group, copy.to);
    } else {
      blocks.begin_fill(copy.group, copy.to);
      blocks.fill_failed(copy.group, copy.to);
    }
  }
  arrivals.clear();
  for (std::uint32_t g = 0; g < blocks.groups().size(); ++g) find_arrivals(pass, g, blocks, arrivals);
}

}  // namespace loci
