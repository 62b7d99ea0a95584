// SPDX-License-Identifier: Apache-2.0
// What a store that servers share has for a request (docs/decisions/shared-store.md). Nobody here knows what
// it holds, so a request that lacks blocks asks when it arrives, and waits in no queue until it is answered
// or the time for that has passed: as long as computing what it asks for takes at most, and never long.
//
// An example: a conversation of four blocks comes to a server that has seen the first alone.
//
//     block     0   1   2   3
//     here      K   .   .   .     ask: which of 1, 2, 3?        answer: 1 and 3
//     index     K   s   h   s     s: a copy in Tier::kShared, which a load may try; h: a hole on the way
//
// From there on it is a request whose blocks are in a slower tier: the plan weighs them by what the link has
// taken so far, loads bring them, and what does not come is computed. What the index remembers of the store
// serves only requests that were answered, as it is worth nothing by itself; each answer corrects it.
//
// In models with windows it first looks for the place where it can go on with what this server has. Of a
// block before that place it asks only if a part that the token there sees is not here; of a block behind
// it, if any part is not here.
//
// It owns which blocks a request has asked about (RequestQuestion). It requires
// that a request asks once, before it is admitted. It calls the index, the transfers, the prefixes, the
// places and the times of passes. Invariants, which check_invariants() tests (core.h has all):
//   7. A question is about blocks of its request, each once, in ascending order; who was answered asks
//      nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "loci/engine/core/core.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. A call costs O(blocks of its request · groups).
class SharedQuestions {
 public:
  // `config` comes from limited_windows(). All six must outlive it.
  SharedQuestions(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, Prefixes& prefixes,
                  const Places& places, const PassTimes& pass_times)
      : config_(config),
        index_(index),
        transfers_(transfers),
        prefixes_(prefixes),
        places_(places),
        pass_times_(pass_times) {}

  // What the store is to be asked for the request; absent: it may not be asked, or the request lacks nothing.
  std::optional<SharedAsk> ask(CoreRequest& request) const;
  // Writes into the index which blocks the store has, as the groups of each block that was asked for (bit g).
  // False: the request has not asked for that many blocks, and nothing has changed.
  bool take_answer(CoreRequest& request, std::span<const std::uint8_t> groups);

  // Aborts on a broken invariant.
  void check_invariants(const CoreRequest& request) const;

 private:
  std::uint32_t start_here(const CoreRequest& request) const;
  bool is_here(BlockId node, GroupSet groups) const;
  void remember(CoreRequest& request, std::span<const std::uint8_t> groups);
  void forget(const ChainKey& key, std::uint8_t found);

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  Prefixes& prefixes_;
  const Places& places_;
  const PassTimes& pass_times_;
};

}  // namespace loci
