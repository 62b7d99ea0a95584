// SPDX-License-Identifier: Apache-2.0
// The invariants of running requests' blocks, as block_tables.h lists them.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include "loci/base/check.h"
#include "loci/engine/core/block_tables.h"

namespace loci {

void BlockTables::check_invariants(const CoreRequest& request) const {
  const auto count = static_cast<std::uint32_t>(request.blocks.size());
  LOCI_CHECK(count > 0 && request.whole_blocks <= count, "invariant 5: a running request has blocks");
  check_slots(request);
  check_names(request);
  check_loads(request);
  check_untouched(request);
}

// Checks what the block hangs from. That is the block before it (`parent`, whose key is `key`), or a gate:
// for the first block after public ones, and the first after a lineage's front. Then `parent` is set to the
// gate, and the gate's key is returned; else `key`.
ChainKey BlockTables::check_parent(const CoreRequest& request, std::size_t number, ChainKey key,
                                   BlockId& parent) const {
  const bool begins = begins_lineage(request.lineage.get(), number);
  const bool is_gated = number > 0 && number == request.prefix->public_blocks;
  if (!begins && !is_gated) return key;
  key = begins ? request.lineage->gate : prefixes_.hasher().gate(key, request.sharing);
  const BlockId gate = index_.find(key);
  LOCI_CHECK(gate != kNoBlock, "invariant 5: what begins anew has a gate");
  // (A lineage's is below another block of the same tokens, where these have become public or ceased to be
  // since it was made.)
  const Block& above = index_.block(index_.block(gate).parent);
  const Block& before = index_.block(parent);
  const bool same = begins && above.tokens == before.tokens && above.depth == before.depth;
  LOCI_CHECK(index_.block(gate).parent == parent || same, "invariant 5: a gate is below the block before it");
  parent = gate;
  return key;
}

void BlockTables::check_names(const CoreRequest& request) const {
  const std::size_t count = request.blocks.size();
  LOCI_CHECK(!request.tail || request.tail->block() == request.blocks.back().block(),
             "invariant 4: the tail is last");
  ChainKey key = prefixes_.first_key(request);
  BlockId parent = index_.find(key);
  const std::span<const TokenId> tokens(request.tokens);
  for (std::size_t i = 0; i < count; ++i) {
    const BlockId id = request.blocks[i].block();
    const Block& b = index_.block(id);
    key = check_parent(request, i, key, parent);
    LOCI_CHECK(b.parent == parent, "invariant 5: each block is its predecessor's child");
    const auto own = tokens.subspan(i * kBlockTokens);
    if (i + 1 == count && request.tail) {
      LOCI_CHECK(b.kind == BlockKind::kTail && b.appending, "invariant 4: one writer a tail");
      LOCI_CHECK(b.filled <= own.size() && std::equal(own.begin(), own.begin() + b.filled, b.tokens.begin()),
                 "invariant 5: a tail spells its request's tokens");
    } else {
      key = prefixes_.hasher().child(key, own.first(kBlockTokens));
      LOCI_CHECK(b.kind == BlockKind::kFull && b.key == key, "invariant 5: a table spells its tokens");
      LOCI_CHECK(std::equal(b.tokens.begin(), b.tokens.end(), own.begin()),
                 "invariant 5: key and tokens agree");
      if (i < request.prefix->public_blocks) {
        LOCI_CHECK(b.filled == kBlockTokens || i < request.whole_blocks,
                   "invariant 4: nobody writes what others have made public");
      }
    }
    parent = id;
  }
}

// What a request needs is held, in the slot that its table has: in groups without window all, in the others
// what the next token to be computed sees (windows.h counts them).
void BlockTables::check_slots(const CoreRequest& request) const {
  const auto count = static_cast<std::uint32_t>(request.blocks.size());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    LOCI_CHECK(request.tables[group].size() == count + request.has_grown(),
               "invariant 2: a table has a place for every block");
    LOCI_CHECK(!request.has_grown() || request.tables[group][count] == request.grown[group]->slot(),
               "invariant 2: a table has the slots of the block that comes");
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool holds = request.blocks[i].holds(group);
      const std::optional<DevicePart>& part = index_.block(request.blocks[i].block()).parts[group];
      const SlotId slot = holds ? part->slot.slot() : kNoSlot;
      LOCI_CHECK(request.tables[group][i] == slot, "invariant 2: a table has the slots that are held");
      LOCI_CHECK(windowed(group) || holds, "invariant 2: what a running request needs is held");
      const bool seen = !windowed(group) || i >= request.windows->first_held[group];
      if (i >= request.whole_blocks || !seen) continue;
      const bool comes = transfers_.loading(request.blocks[i].block(), group);
      LOCI_CHECK(holds && (part->filled == kBlockTokens || comes || request.load_phase.is(LoadPhase::kLost)),
                 "invariant 4: whole blocks lack nothing that is seen");
    }
  }
}

void BlockTables::check_untouched(const CoreRequest& request) const {
  for (std::size_t i = request.untouched_from; i < request.blocks.size(); ++i) {
    const BlockId id = request.blocks[i].block();
    LOCI_CHECK(index_.block(id).filled == 0 && !transfers_.loading(id),
               "invariant 10: what is untouched has no state");
  }
}

void BlockTables::check_loads(const CoreRequest& request) {
  const std::vector<std::uint32_t>& loads = request.loads;
  const LoadPhase phase = request.load_phase.now();
  LOCI_CHECK(phase != LoadPhase::kNone || loads.empty(), "invariant 7: who waits for loads is known to");
  const bool awaits =
      phase == LoadPhase::kWaits || phase == LoadPhase::kJoined || phase == LoadPhase::kMissed;
  LOCI_CHECK(!awaits || !loads.empty(), "invariant 7: nobody waits for loads that it does not have");
  LOCI_CHECK(std::ranges::adjacent_find(loads, std::greater_equal{}) == loads.end() &&
                 (loads.empty() || loads.back() < request.blocks.size()),
             "invariant 7: a request's loads are of its blocks, each once");
}

}  // namespace loci
