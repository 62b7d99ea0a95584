// Which of the blocks that nobody needs to give up first. What lies behind every window goes before all
// else (but under random), as it is needed only by who parts from the sequence there. Ties are broken by
// depth, the deepest first, so that a sequence is given up from its end where nothing else decides.
//
//   lru     least recently used. A block's users use all blocks before it too, so no holes arise.
//   fifo    the oldest copy first (Berkeley's prefix caching, as a baseline).
//   random  any, from a seed (a baseline; leaves holes).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "loci/base/status.h"
#include "loci/memory/eviction_order.h"
#include "loci/memory/tier.h"
#include "loci/policy/cost_model.h"

namespace loci {

// Whose copies an order is of.
struct EvictionPlace {
  Tier tier = Tier::kDevice;
  std::uint64_t block_bytes = 0;  // of a copy; 0 where it does not matter
  std::uint64_t seed = 0;
};

// `costs` is kept. Errors: kInvalidArgument (field "eviction") naming the policies.
Result<std::unique_ptr<EvictionOrder>> make_eviction_order(std::string_view name, const EvictionPlace& place,
                                                           std::shared_ptr<const CostModel> costs);

}  // namespace loci
