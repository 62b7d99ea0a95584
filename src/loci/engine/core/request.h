// SPDX-License-Identifier: Apache-2.0
// A request as the core knows it, from its arrival to its end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/compute/slot_table.h"
#include "loci/engine/core/owned_by.h"
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

// What a request is from its arrival on; nobody changes it. Arrivals makes it.
struct RequestFacts {
  const RequestId id;
  const std::uint64_t arrival = 0;  // counts arrivals
  const Nanos arrived_at = 0;
  const TenantId tenant;
  const std::string sharing;       // sharing_of() its arrival, from which the keys of its blocks begin
  const std::uint32_t weight = 1;  // of its tenant
  const std::uint32_t prompt_tokens = 0;
  const std::uint32_t max_new_tokens = 0;
  const std::uint32_t min_new_tokens = 0;
  const std::vector<TokenId> stop_tokens;  // sorted
  const Nanos deadline = kNever;
  const bool is_public = false;                      // a public prefix
  const std::unique_ptr<const CoreLineage> lineage;  // null: nothing was dropped
  const bool follows = false;  // a pass may continue from its sample while only the device has it
};

// --- what one owner alone changes; its header has the rules ---

// before_queue.h
struct RequestBeforeQueue {
  std::optional<Nanos> until;  // until when it waits for the store's answer or for its beginning
  bool for_beginning = false;  // it waits for its beginning
};

// shared_questions.h
struct RequestQuestion {
  std::vector<std::uint32_t> asked;  // the blocks of its keys about which the store was asked
  bool answered = false;  // the index's knowledge of the store comes from this answer or a later one
};

// beginnings.h
struct RequestBeginning {
  // The first tokens of a block that lacks state in some group are being loaded from a slower tier, or were.
  std::optional<CoreBeginning> found;
};

// preloads.h
struct RequestPreload {
  // When it was last tried to begin its loads before it is admitted (Room::changes(); 0: never), and whether
  // there was something to load.
  std::uint64_t seen = 0;
  bool lacks = false;
  // By its number, what was loaded so. (The key tells whether the block of that number is still the same.)
  struct Loaded {
    ChainKey key;
    std::optional<Tier> from;  // none: nothing was
  };
  std::vector<Loaded> blocks;
};

// prefixes.h
struct RequestNames {
  std::vector<ChainKey> keys;          // of its whole blocks, but the one of the last token
  std::uint32_t public_ones = 0;       // how many of them belong to public prefixes
  std::vector<ChainKey> public_chain;  // what its first blocks are called if they are public, as far as known
};

// admission.h
struct RequestPrefix {
  std::uint32_t public_blocks = 0;  // how many of its first blocks belong to public prefixes
};

// Where the first tokens of one of a prompt's blocks came from; the others are computed.
struct FoundBlock {
  Tier from = Tier::kDevice;
  bool hidden = false;  // as hidden states
  std::uint8_t tokens = 0;
};
// Of all blocks of a prompt, and their sum.
struct FoundSources {
  ContextSources sum;
  std::vector<FoundBlock> blocks;
};

// prompt_sources.h
struct RequestSources {
  FoundSources found;              // at its first admission, less what did not come
  std::optional<MissReason> lost;  // why a load has failed since
  bool is_open = false;            // it was admitted, and is not settled; later there is the sum alone
};

// windows.h, for groups with a window
struct RequestWindows {
  GroupCounts promised{};    // slots that it may hold
  GroupCounts held{};        // slots that it holds
  GroupCounts first_held{};  // blocks before this one were let go
  GroupCounts lent{};        // slots of its promise that passes in flight still read, although they belong to
                             // no block now
  std::uint32_t parting = 0;  // tokens before the place where it parts from what others have computed; 0: it
                              // does not
};

// flights.h
struct RequestPasses {
  std::uint32_t in_flight = 0;                   // how many passes in flight have spans of it
  OperationId last;                              // the last pass that had spans of it
  std::array<std::uint32_t, 2> computes_from{};  // the first token that each pass in flight computes
  std::uint32_t computes_to = 0;  // the end of the tokens that the last of them computes; 0: they only copy
  bool wasted = false;            // the first one was poisoned, so spans that continue from it bring nothing
  std::uint32_t poisoned = 0;     // passes, in a row
};

class Admission;
class BeforeQueue;
class Beginnings;
class Flights;
class Preloads;
class Prefixes;
class PromptSources;
class SharedQuestions;
class Windows;

// A request from its arrival to its end. It waits, or it runs. While it runs it pins one block for every
// kBlockTokens of its tokens; the last one, the tail, is its own. It holds the blocks' parts in groups
// without a window. In other groups it holds those parts that tokens still to be computed see.
//
// Everybody reads all of it. Nobody changes the facts. Who changes its life and its blocks is said there, and
// the compiler keeps everything else to its owner.
struct CoreRequest : RequestFacts {
  // --- its life: the machine (core_state.h) changes it ---

  std::vector<TokenId> tokens;  // the prompt, then the sampled tokens
  PhaseOf<RequestPhase> phase;
  // Its client does not read the reply. It leaves the batch as soon as no pass has spans of it, and is in no
  // queue.
  bool paused = false;
  FinishReason end_reason = FinishReason::kCancelled;  // only for a request that is ending
  std::uint32_t suspensions = 0;
  // Giving way (giving_way.h).
  std::uint64_t passed_by =
      0;  // tokens of others that were admitted before it as it lacked room, replies too
  std::vector<RequestId> passed;         // whom it passed when it was admitted last
  std::optional<RequestId> gave_way_to;  // when it was suspended last

  // --- its blocks, while it runs: Admission places the first ones, then BlockTables changes them ---

  // blocks[i]: tokens [i, i + 1) * kBlockTokens. Windows changes which parts they hold; Flights takes them
  // over, and the machine those of a public prefix.
  std::vector<BlockPin> blocks;
  // Their parts' slots, then those of `grown`; kNoSlot: not held. Passes share them. Windows changes them
  // too.
  std::array<SlotTable, kLayerGroupsMax> tables;
  std::optional<AppendToken> tail;  // for the last block, until it is whole
  // Slots for the block of the token that the pass in flight samples, if the pass ahead begins this block.
  // Flights takes them over.
  CoreSlots grown;
  // All blocks before this one have the state that is needed. Windows counts on, in models without windows
  // too.
  std::uint32_t whole_blocks = 0;
  // From this block on nothing was computed, copied or begun to load, so that what a long prompt lacks is
  // counted without a look at each block. Admission sets it, BlockTables moves it on; UINT32_MAX, no block,
  // in models with windows.
  std::uint32_t untouched_from = 0;
  // Blocks that were still being loaded when PassFormer last checked this, or a load ended.
  std::vector<std::uint32_t> loads;
  PhaseOf<LoadPhase> load_phase;  // PassFormer lets it join a pass, Flights holds it back
  // Blocks that come as hidden states, or have come so, and the number of the first: the first pass that
  // reads them projects them. Set when it is admitted; PassFormer forms that pass.
  struct ToProject {
    std::uint32_t blocks = 0;
    std::uint32_t first = 0;
  } to_project;
  // The disk was late or failed, or loads of two passes in a row were lost in a model with windows. Nothing
  // from the disk on is asked again until the request has made progress: Flights sees that.
  bool without_disk = false;

  // --- what is one owner's ---

  OwnedBy<BeforeQueue, RequestBeforeQueue> before_queue;
  OwnedBy<SharedQuestions, RequestQuestion> question;
  OwnedBy<Beginnings, RequestBeginning> beginning;
  OwnedBy<Preloads, RequestPreload> preload;
  OwnedBy<Prefixes, RequestNames> names;
  OwnedBy<Admission, RequestPrefix> prefix;
  OwnedBy<PromptSources, RequestSources> sources;
  OwnedBy<Windows, RequestWindows> windows;
  OwnedBy<Flights, RequestPasses> passes;

  // Says that all of it will soon be looked at.
  void prefetch() const {
    const auto* const begin = reinterpret_cast<const char*>(this);
    for (std::size_t at = 0; at < sizeof *this; at += 64) __builtin_prefetch(begin + at);
  }
  bool runs() const { return phase.now() >= RequestPhase::kPrompt; }
  bool waits() const { return !runs() && !paused && !before_queue->until; }  // true: it is in the queue
  bool was_admitted() const { return !phase.is(RequestPhase::kQueued); }
  // True: a block that it needed will not come. Of its passes in flight only what they compute before the
  // first block that was being loaded counts.
  bool lost_a_load() const { return load_phase.is(LoadPhase::kMissed) || load_phase.is(LoadPhase::kLost); }
  // True: it gives way as soon as no pass has spans of it.
  bool gives_way() const { return paused || load_phase.is(LoadPhase::kLost); }
  bool has_grown() const { return grown.front().has_value(); }
  std::uint32_t length() const { return static_cast<std::uint32_t>(tokens.size()); }
  std::uint32_t new_tokens() const { return length() - prompt_tokens; }
};

}  // namespace loci
