// SPDX-License-Identifier: Apache-2.0
// The keys of all blocks that an arrival or a deletion names: all hashing that these events need. They follow
// from the tokens and from which prefixes are public, so whoever submits makes them, and a step of the core
// hashes nothing: of a context of 128K tokens the keys alone take 2 ms, of one that was cut eight times 16.
//
//     submits   prefixes = what the core said is public       keys = arrival_keys(..., prefixes, arrival)
//     core      is what is public as the keys say?            yes: it takes them; no: it makes them itself
//
// A prefix may become public, or no longer be, while an event is in the inbox; and logs do not record keys.
// So the core makes the same keys by the same functions wherever it cannot take those that came.
//
// Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/memory/block_entry.h"
#include "loci/memory/chain_key.h"

namespace loci {

struct Arrival;
struct CoreConfig;
struct Forget;

// The present public prefixes, each as the keys of its whole blocks from the public root on.
using PublicChains = std::vector<std::shared_ptr<const std::vector<ChainKey>>>;

// How a sequence begins with public blocks.
struct PublicBeginning {
  // Keys from the public root: of the blocks that are public, and of the block behind them, if it is whole
  // and any prefix is public. So whoever has the index can tell whether this is still so.
  std::vector<ChainKey> keys;
  std::uint32_t blocks = 0;  // that are public
};

// A sequence that has dropped tokens after its front (docs/decisions/truncation.md): its blocks from
// `front_blocks` on are below a gate of their own, the lineage's.
struct CoreLineage {
  // An earlier lineage of the history: it has the same tokens `shift_blocks` further from the beginning.
  struct Earlier {
    ChainKey parent;          // what its own blocks hang from
    std::uint32_t begin = 0;  // the first of them, in blocks of the history
    std::uint32_t shift_blocks = 0;
    // The keys that it gave to blocks which are still kept, from block front_blocks + first of the present
    // sequence to the end of its own context.
    std::uint32_t first = 0;
    std::vector<ChainKey> keys;
  };
  std::uint32_t front_blocks = 0;  // at least 1
  ChainKey gate;
  std::vector<Earlier> earlier;  // the oldest first. Of a request at most kLineagesLookedAt
};

// So many earlier lineages of a history are looked at, whatever cuts a client has chosen: each costs a look
// at every probe. Cuts of an eighth of the context or more, as the default ones are, have no more that share
// a block.
inline constexpr std::size_t kLineagesLookedAt = 8;
// Which ones are looked at depends on what the index has. They are of so many, the newest, which are hashed
// before that is known.
inline constexpr std::size_t kLineagesHashed = 32;

// What else costs by the length of a prompt is done with its keys: its tokens are looked at, and those that
// are computed are put together.
struct ArrivalKeys {
  bool made = false;                   // then all tokens are tokens
  std::vector<TokenId> kept;           // what is computed, if anything was dropped
  PublicBeginning beginning;           // of the history
  std::uint32_t public_blocks = 0;     // how many of the first blocks that are computed are public
  std::vector<ChainKey> blocks;        // of the whole blocks that are computed, but the one of the last token
  std::optional<CoreLineage> lineage;  // absent: nothing was dropped
};

struct ForgetKeys {
  struct Path {
    std::vector<ChainKey> keys;     // key of the root or gate, then of each whole block below it
    std::size_t tokens_before = 0;  // tokens in public blocks before these, which are not the tenant's
  };
  bool made = false;
  PublicBeginning beginning;
  // Names under which state of the tokens may lie: below the root, and below the gate after public blocks.
  std::vector<Path> paths;
};

// Whether one of them is kNoToken, which no text may have. O(tokens).
bool contains_reserved_token(std::span<const TokenId> tokens);
// Not ok: the arrival's cuts are not valid.
Status dropped_refusal(const Arrival& arrival);

// The name of the state that the request may use, from which its keys begin.
std::string sharing_in(const CoreConfig& config, const Arrival& arrival);

// Not made if the arrival is one that the core refuses. O(tokens · lineages that share a block).
ArrivalKeys arrival_keys(const CoreConfig& config, const ChainKeyHasher& hasher, const PublicChains& prefixes,
                         const Arrival& arrival);
// Does what else would cost a step by the length of the prompt, so that no step does it: makes the keys, and
// room behind the tokens for as many of a reply, or for kReplyRoom if that is more. (A sample that finds no
// room moves all of them, half a MiB of a context of 128K.)
inline constexpr std::uint32_t kReplyRoom = 1024;
void prepare_arrival(const CoreConfig& config, const ChainKeyHasher& hasher, const PublicChains& prefixes,
                     Arrival& arrival);
// O(tokens).
ForgetKeys forget_keys(const ChainKeyHasher& hasher, const PublicChains& prefixes, const Forget& forget);
// Says of the entries whose keys are those of their parents and their tokens that this was checked.
void check_keys(const ChainKeyHasher& hasher, std::span<RecoveredEntry> found);

}  // namespace loci
