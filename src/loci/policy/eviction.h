// SPDX-License-Identifier: Apache-2.0
// The eviction policies, by name: which of the blocks that nobody needs to give up first. All but random
// first give up blocks behind every window, which only a sequence that parts from theirs there would need.
//
//   lru        least recently used
//   fifo       the oldest copy first
//   random     any, from a seed
//   retention  Pensieve: what is cheap to compute again and has long been idle
//   lookahead  AttentionStore: least recently used, but last what the queue needs
//   value      what costs least time to restore, divided by its bytes and by the time it has been idle and
//   three minutes; but last what the queue needs
//
// In host memory and on the disk none gives up what a waiting request needs and no slower tier of this server
// has, while there is anything else (eviction/sparing_order.h).
//
// Each is a class of its own under eviction/. Integers alone: the same calls give the same order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "loci/base/status.h"
#include "loci/memory/eviction_order.h"
#include "loci/memory/tier.h"
#include "loci/policy/cost_model.h"

namespace loci {

inline constexpr std::array<std::string_view, 6> kEvictionPolicies = {"lru",       "fifo",      "random",
                                                                      "retention", "lookahead", "value"};

// Whose copies an order is of.
struct EvictionPlace {
  Tier tier = Tier::kDevice;
  std::uint64_t block_bytes = 0;   // of a copy; 0 where it does not matter
  std::uint64_t hidden_bytes = 0;  // of a copy as hidden states; 0: there are none
  std::uint64_t seed = 0;
  // A block that is missing inside a sequence can be computed by itself. If some layers have a window it
  // cannot: all tokens after it are computed again (docs/decisions/layer-groups.md).
  bool holes = true;
  // Blocks are judged in runs of so many of a sequence, by the first of each: swap_chunk_tokens.
  std::uint32_t chunk_blocks = 1;
};

// `costs` is kept. Errors: kInvalidArgument (field "eviction") naming the policies.
Result<std::unique_ptr<EvictionOrder>> make_eviction_order(std::string_view name, const EvictionPlace& place,
                                                           std::shared_ptr<const CostModel> costs);

}  // namespace loci
