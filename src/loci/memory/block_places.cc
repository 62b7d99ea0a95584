// SPDX-License-Identifier: Apache-2.0
// What the index tells of where blocks are: a block whose state came, went or is whole now is noted once for
// each reader (noted_blocks.h), and looked at when that one takes what was noted.
#include <utility>

#include "loci/memory/block_index.h"

namespace loci {

using Reader = NotedBlocks::Reader;

std::optional<Tier> BlockIndex::tier_of(BlockId id) const {
  const Block& b = block(id);
  if (b.kind != BlockKind::kFull) return std::nullopt;
  if (b.filled_in(0) == kBlockTokens) return Tier::kDevice;
  const LowerCopy* copy = b.whole_copy(0);
  return copy == nullptr || copy->tier == Tier::kShared ? std::nullopt : std::optional(copy->tier);
}

// Its name goes; the node may be another block's by the time that somebody takes what was noted.
void BlockIndex::note_nameless(BlockId id) {
  Block& b = at(id);
  if (b.kind == BlockKind::kFull) noted_.note_gone(Reader::kNearness, b.key);
  if (std::exchange(b.told, std::nullopt)) noted_.note_gone(Reader::kPlaces, b.key);
}

std::vector<ChainKey> BlockIndex::take_changed() {
  NotedBlocks::Noted noted = noted_.take(Reader::kNearness);
  std::vector<ChainKey> out = std::move(noted.gone);
  for (const BlockId id : noted.blocks) {
    if (block(id).kind == BlockKind::kFull) out.push_back(block(id).key);
  }
  return out;
}

void BlockIndex::watch_places() {
  noted_.watch(Reader::kPlaces);
  for (std::uint32_t id = 0; id < blocks_.size(); ++id) noted_.note(BlockId(id));
}

std::vector<BlockPlace> BlockIndex::take_moved() {
  const NotedBlocks::Noted noted = noted_.take(Reader::kPlaces);
  std::vector<BlockPlace> out;
  for (const ChainKey& key : noted.gone) out.push_back({key, std::nullopt});
  for (const BlockId id : noted.blocks) {
    const std::optional<Tier> now = tier_of(id);
    if (now == block(id).told) continue;
    at(id).told = now;
    out.push_back({block(id).key, now});
  }
  return out;
}

}  // namespace loci
