// SPDX-License-Identifier: Apache-2.0
// What the index tells of where blocks are (BlockIndex::take_moved): a block whose state came, went or is
// whole now is noted once, and looked at when somebody takes what was noted.
#include <utility>

#include "loci/memory/block_index.h"

namespace loci {

std::optional<Tier> BlockIndex::tier_of(BlockId id) const {
  const Block& b = block(id);
  if (b.kind != BlockKind::kFull) return std::nullopt;
  if (b.filled_in(0) == kBlockTokens) return Tier::kDevice;
  const LowerCopy* copy = b.whole_copy(0);
  return copy == nullptr || copy->tier == Tier::kShared ? std::nullopt : std::optional(copy->tier);
}

void BlockIndex::watch_places() {
  is_watched_ = true;
  for (std::uint32_t id = 0; id < blocks_.size(); ++id) note_moved(BlockId(id));
}

void BlockIndex::note_moved(BlockId id) {
  if (!is_watched_ || std::exchange(at(id).is_moved, true)) return;
  moved_.push_back(id);
}

// Its name goes; the node may be another block's by the time that somebody takes what was noted.
void BlockIndex::note_nameless(BlockId id) {
  if (std::exchange(at(id).told, std::nullopt)) nameless_.push_back({at(id).key, std::nullopt});
}

std::vector<BlockPlace> BlockIndex::take_moved() {
  std::vector<BlockPlace> out = std::exchange(nameless_, {});
  for (const BlockId id : moved_) {
    Block& b = at(id);
    b.is_moved = false;
    const std::optional<Tier> now = tier_of(id);
    if (now == b.told) continue;
    b.told = now;
    out.push_back({b.key, now});
  }
  moved_.clear();
  return out;
}

}  // namespace loci
