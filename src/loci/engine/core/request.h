// SPDX-License-Identifier: Apache-2.0
// A request as the core knows it, from its arrival to its end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "loci/engine/core/phases.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/probes.h"
#include "loci/memory/block_index.h"

namespace loci {

// How many of the prompt's tokens are computed, that is, not dropped.
inline std::size_t kept_tokens(const Arrival& event) {
  if (event.dropped.empty()) return event.prompt.size();
  return event.prompt.size() - (event.dropped.back().end - event.dropped.front().begin);
}

// A request from its arrival to its end. It waits, or it runs. While it runs it pins one block for every
// kBlockTokens of its tokens; the last one, the tail, is its own. It holds the blocks' parts in groups
// without a window. In other groups it holds those parts that tokens still to be computed see.
struct CoreRequest {
  RequestId id;
  std::uint64_t arrival = 0;  // counts arrivals
  Nanos arrived_at = 0;
  SharingGroup group;           // its tenant
  std::string sharing;          // sharing_of() its arrival, from which the keys of its blocks begin
  std::uint32_t weight = 1;     // of its tenant
  std::vector<TokenId> tokens;  // the prompt, then the sampled tokens
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_new_tokens = 0;
  std::uint32_t min_new_tokens = 0;
  std::vector<TokenId> stop_tokens;  // sorted
  Nanos deadline = kNever;
  bool is_public = false;                      // a public prefix
  std::unique_ptr<const CoreLineage> lineage;  // null: nothing was dropped
  std::uint32_t cached_tokens = 0;
  std::uint32_t suspensions = 0;
  std::uint32_t poisoned_passes = 0;  // in a row

  PhaseOf<RequestPhase> phase;
  // Its client does not read the reply. It leaves the batch as soon as no pass has spans of it, and is in no
  // queue.
  bool paused = false;
  FinishReason end_reason = FinishReason::kCancelled;  // only for a request that is ending

  // While it runs:
  std::vector<BlockPin> blocks;                             // blocks[i]: tokens [i, i + 1) * kBlockTokens
  std::array<std::vector<SlotId>, kLayerGroupsMax> tables;  // their parts' slots; kNoSlot: not held
  std::optional<AppendToken> tail;                          // for the last block, until it is whole
  std::uint32_t public_blocks = 0;  // how many of its first blocks belong to public prefixes
  std::uint32_t whole_blocks = 0;   // all blocks before this one have the state that is needed
  // Groups with a window:
  GroupCounts promised{};       // slots that it may hold
  GroupCounts held{};           // slots that it holds
  GroupCounts first_held{};     // blocks before this one were let go
  std::uint32_t parting = 0;    // tokens before the place where it parts from what others have computed; 0:
                                // it does not
  std::uint32_t in_passes = 0;  // how many passes in flight have spans of it
  OperationId last_pass;        // the last pass that had spans of it
  // Loads:
  std::vector<std::uint32_t> loads;  // blocks that were still being loaded when this was last checked
  PhaseOf<LoadPhase> load_phase;
  bool without_disk = false;      // the disk did not bring what it needed; it is not asked again until the
                                  // request has made progress
  std::vector<ChainKey> keys;     // of its whole blocks; made when they are first needed
  std::uint32_t keys_public = 0;  // how many of them belong to public prefixes
  // The shared store:
  std::vector<std::uint32_t> asked;         // the blocks of `keys` about which it was asked
  std::optional<Nanos> before_queue_until;  // until when it waits for the answer or for `beginning`
  bool answered = false;  // the index's knowledge of the store comes from this answer or a later one
  // The first tokens of its first unknown block are being loaded from a slower tier, or were:
  std::optional<CoreBeginning> beginning;
  bool awaits_beginning = false;  // it waits for them until `before_queue_until`
  // Its loads may begin before it is admitted. When this was last tried (Room::changes(); 0: never), and
  // whether there was something to load.
  std::uint64_t preload_seen = 0;
  bool preload_lacks = false;
  // By its number, what was loaded so. (The key tells whether the block of that number is still the same.)
  struct Preload {
    ChainKey key;
    std::optional<Tier> from;  // none: nothing was
  };
  std::vector<Preload> preloads;

  // Passes ahead:
  bool follows = false;           // a pass may continue from its sample while only the device has it
  std::uint32_t computes_to = 0;  // the end of the tokens that the last of them computes; 0: they only copy
  bool wasted = false;            // the first one was poisoned, so spans that continue from it bring nothing
  // Slots for the block of the token that the pass in flight samples, if the pass ahead begins this block.
  CoreSlots grown;
  // Groups with a window: slots of its promise that passes in flight still read, although they belong to no
  // block now.
  GroupCounts lent{};
  std::array<std::uint32_t, 2> computes_from{};  // the first token that each pass in flight computes

  bool runs() const { return phase.now() >= RequestPhase::kPrompt; }
  bool waits() const { return !runs() && !paused && !before_queue_until; }  // true: it is in the queue
  bool was_admitted() const { return !phase.is(RequestPhase::kQueued); }
  // True: its passes in flight read blocks that did not come.
  bool passes_bring_nothing() const {
    return load_phase.is(LoadPhase::kMissed) || load_phase.is(LoadPhase::kLost);
  }
  // True: it gives way as soon as no pass has spans of it.
  bool gives_way() const { return paused || load_phase.is(LoadPhase::kLost); }
  bool has_grown() const { return grown.front().has_value(); }
  std::uint32_t length() const { return static_cast<std::uint32_t>(tokens.size()); }
  std::uint32_t new_tokens() const { return length() - prompt_tokens; }
};

}  // namespace loci
