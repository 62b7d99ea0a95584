// The index's invariants, as block_index.h lists them.
#include <algorithm>
#include <vector>

#include "loci/base/check.h"
#include "loci/memory/block_index.h"

namespace loci {

void BlockIndex::check_block(BlockId id) const {
  const Block& b = block(id);
  if (b.kind == BlockKind::kUnused) {
    LOCI_CHECK(!b.device && b.pins == 0 && b.children == 0, "an unused node holds nothing");
    return;
  }
  if (b.kind == BlockKind::kRoot) {
    LOCI_CHECK(b.parent == kNoBlock && !b.device, "a root has neither parent nor state");
  } else {
    LOCI_CHECK(b.parent != kNoBlock, "what is no root has a parent");
    const Block& parent = block(b.parent);
    LOCI_CHECK(parent.kind == BlockKind::kRoot || parent.kind == BlockKind::kFull, "tails are leaves");
    LOCI_CHECK(b.facts.depth == parent.facts.depth + 1, "depth counts from the root");
    LOCI_CHECK(parent.children_with_state.contains(id) == (b.filled() > 0),
               "a parent orders its children with state");
  }
  // 2.
  if (b.device && b.device->appending) LOCI_CHECK(b.pins > 0, "invariant 2: who appends has a pin");
  // 4.
  if (b.kind != BlockKind::kTail) {
    LOCI_CHECK(find(b.key) == id, "invariant 4: a key leads to its node");
  } else {
    LOCI_CHECK(b.children == 0, "tails are leaves");
  }
  LOCI_CHECK(b.filled() <= kBlockTokens, "invariant 4: a copy holds at most a block");
  // 6.
  LOCI_CHECK(b.device || b.pins > 0 || b.children > 0, "invariant 6: a node without use ends");
  if (b.pins == 0 && b.children == 0) LOCI_CHECK(b.filled() > 0, "invariant 6: an unused leaf has state");
}

void BlockIndex::check_invariants() const {
  std::vector<bool> seen(pool_.count(), false);
  std::vector<std::uint32_t> children(blocks_.size(), 0);
  std::size_t taken = 0, evictable = 0, keyed = 0, live = 0;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    check_block(BlockId(i));
    if (b.kind == BlockKind::kUnused) continue;
    ++live;
    if (b.kind != BlockKind::kTail) ++keyed;
    if (b.parent != kNoBlock) ++children[b.parent.value];
    if (b.evictable()) ++evictable;
    if (!b.device) continue;
    // 1.
    const SlotId slot = b.device->slot.slot();
    LOCI_CHECK(slot.value < seen.size() && !seen[slot.value], "invariant 1: a slot has one owner");
    LOCI_CHECK(pool_.taken(slot), "invariant 1: a copy's slot is taken");
    seen[slot.value] = true;
    ++taken;
  }
  LOCI_CHECK(taken + pool_.free_count() == pool_.count(), "invariant 1: free or one copy's");
  LOCI_CHECK(evictable == eviction_->size(), "invariant 2: what nobody pins may be evicted, nothing else");
  LOCI_CHECK(keyed == by_key_.size(), "invariant 4: one node a key");
  LOCI_CHECK(live == live_, "nodes are counted");
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    LOCI_CHECK(children[i] == b.children, "children are counted");
    LOCI_CHECK(std::is_sorted(b.children_with_state.begin(), b.children_with_state.end(), ChildOrder(this)),
               "children are in order");
  }
}

}  // namespace loci
