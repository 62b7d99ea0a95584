// SPDX-License-Identifier: Apache-2.0
// A request as the core knows it, from its arrival to its end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "loci/engine/core/phases.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/probes.h"
#include "loci/memory/block_index.h"

namespace loci {

// Of the prompt's tokens those that are computed.
inline std::size_t kept_tokens(const Arrival& event) {
  if (event.dropped.empty()) return event.prompt.size();
  return event.prompt.size() - (event.dropped.back().end - event.dropped.front().begin);
}

// A request from its arrival to its end. It waits, or it runs: then it has pinned one block for every
// kBlockTokens of its tokens, the last of them (the tail) its own. It holds their parts in the groups
// without window, and in the others those parts that tokens see which it is still to compute.
struct CoreRequest {
  RequestId id;
  std::uint64_t arrival = 0;  // counts arrivals
  Nanos arrived_at = 0;
  SharingGroup group;           // its tenant
  std::string sharing;          // sharing_of() its arrival: what the keys of its blocks begin with
  std::uint32_t weight = 1;     // of its tenant
  std::vector<TokenId> tokens;  // the prompt, then what was sampled
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
  // Its client does not take what it says. It leaves the batch as soon as no pass has it, and is in no queue.
  bool paused = false;
  FinishReason end_reason = FinishReason::kCancelled;  // of a request that is ending

  // While it runs:
  std::vector<BlockPin> blocks;                             // blocks[i]: tokens [i, i + 1) * kBlockTokens
  std::array<std::vector<SlotId>, kLayerGroupsMax> tables;  // their parts' slots; kNoSlot: not held
  std::optional<AppendToken> tail;                          // of the last block, until it is whole
  std::uint32_t public_blocks = 0;  // the first of its blocks, which are public prefixes'
  std::uint32_t whole_blocks = 0;   // blocks before this one lack no state that is needed
  // Groups with a window:
  GroupCounts promised{};       // slots that it may hold
  GroupCounts held{};           // that it holds
  GroupCounts first_held{};     // blocks before this one were let go
  std::uint32_t parting = 0;    // tokens before the place where it left what others have; 0: it did not
  std::uint32_t in_passes = 0;  // passes in flight that have spans of it
  OperationId last_pass;        // that had
  // Loads:
  std::vector<std::uint32_t> loads;  // blocks that were being loaded when last looked at
  PhaseOf<LoadPhase> load_phase;
  bool without_disk = false;      // the disk did not bring what it needed: until it gets on, it is not asked
  std::vector<ChainKey> keys;     // of its whole blocks, from when somebody first needed them
  std::uint32_t keys_public = 0;  // so many of them are of public prefixes
  // The shared store:
  std::vector<std::uint32_t> asked;         // the blocks of `keys` that it was asked for
  std::optional<Nanos> before_queue_until;  // it waits, for the answer or for `beginning`
  bool answered = false;  // what the index says that the store has is as of this answer, or later
  // The first tokens of its first block that is not known were on their way, or are, from a slower tier:
  std::optional<CoreBeginning> beginning;
  bool awaits_beginning = false;  // until `before_queue_until`
  // Before it is admitted its loads may begin: when that was last tried (Core::State::room_changes_; 0:
  // never), and whether there was something to load then.
  std::uint64_t preload_seen = 0;
  bool preload_lacks = false;
  std::map<ChainKey, Tier> preloads;  // the blocks' that they were of, and where these came from

  // Passes ahead:
  bool follows = false;           // a pass may go on from its sample while that is on the device
  std::uint32_t computes_to = 0;  // the end of what the last of them computes; 0: they only copy
  bool wasted = false;            // the first one was poisoned: what goes on from it brings nothing
  // For the block of the token that the pass in flight samples, where the pass ahead begins it.
  CoreSlots grown;
  // Groups with a window: slots of its promise that passes in flight read, and that are no block's now.
  GroupCounts lent{};
  std::array<std::uint32_t, 2> computes_from{};  // the first token that each pass in flight computes

  bool runs() const { return phase.now() >= RequestPhase::kPrompt; }
  bool waits() const { return !runs() && !paused && !before_queue_until; }  // in the queue
  bool was_admitted() const { return !phase.is(RequestPhase::kQueued); }
  // Its passes in flight read what did not come.
  bool passes_bring_nothing() const {
    return load_phase.is(LoadPhase::kMissed) || load_phase.is(LoadPhase::kLost);
  }
  // As soon as no pass has it.
  bool gives_way() const { return paused || load_phase.is(LoadPhase::kLost); }
  bool has_grown() const { return grown.front().has_value(); }
  std::uint32_t length() const { return static_cast<std::uint32_t>(tokens.size()); }
  std::uint32_t new_tokens() const { return length() - prompt_tokens; }
};

}  // namespace loci
