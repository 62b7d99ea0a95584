// SPDX-License-Identifier: Apache-2.0
// A pass as the core knows it, while it is formed and then in flight: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/ids.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/memory/block_index.h"
#include "loci/memory/slot_pool.h"

namespace loci {

// The state of one block that a pass brings.
struct CorePiece {
  BlockId block;                     // kNoBlock: that of CoreRequest::grown
  std::uint32_t filled = 0;          // after the pass
  std::optional<std::size_t> claim;  // index of the pass's claim; none: it is the request's own tail
};

struct CoreSpan {
  CoreRequest* request = nullptr;  // null: it has ended, and the span is wasted
  std::uint32_t position = 0;
  std::uint32_t count = 0;
  bool sample = false;
  std::size_t first_piece = 0;  // of the pass
  std::size_t piece_count = 0;
  GroupCounts write_from{};                              // BlockTable::write_from
  std::optional<std::uint32_t> token_of = std::nullopt;  // Span::token_of
  bool wasted = false;          // it continues from a poisoned span, so nothing of it counts
  bool counts = false;          // the pass has ended, and what the span has computed stands
  bool reads_arriving = false;  // when it was planned, blocks of its request before it were still being
                                // loaded
};

struct CoreCopy {
  CoreRequest* request = nullptr;
  BlockPin source;
  CorePiece target;
};

// What a request held when it ended while a pass had spans of it.
struct CoreKept {
  std::vector<BlockPin> blocks;
  CoreSlots grown;
  GroupCounts promised{};
};

// A slot that a pass in flight may read or write, but that belongs to no block any more.
struct CoreDetached {
  std::optional<RequestId> owner;  // whose RequestWindows::lent counts it; none: Windows counts it
  std::uint32_t group = 0;
  SlotReservation slot;
};

// The pass that is being formed, then in flight.
struct CorePass {
  OperationId id;
  std::uint32_t budget = 0;  // tokens left
  Nanos projecting = 0;      // the predicted time that projecting hidden states takes of it
  // Tokens that are computed in the part of that time which has not been taken off the budget.
  std::uint64_t overdrawn = 0;
  std::vector<CoreCopy> copies;
  std::vector<CoreSpan> spans;
  std::vector<CorePiece> pieces;
  // Kept until the pass has ended. Declared after its claims, because claims must end before pins:
  std::vector<CoreKept> kept;
  std::vector<CoreDetached> detached;
  std::vector<std::optional<AppendToken>> claims;
  // Claims that the pass before holds until it ends: index here, index there.
  std::vector<std::pair<std::size_t, std::size_t>> inherits;
  std::vector<CoreRequest*> requests;  // requests that have spans or copies in the pass
};

}  // namespace loci
