// SPDX-License-Identifier: Apache-2.0
// What the tests of eviction orders share.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "loci/policy/eviction.h"

namespace loci {

using Facts = std::map<BlockId, EvictionFacts>;

// All blocks of `order`, in the order in which it gives them up.
inline std::vector<std::uint32_t> drain(EvictionOrder& order, const Facts& facts, Nanos now = 0) {
  std::vector<std::uint32_t> victims;
  for (BlockId next = order.choose(now); next != kNoBlock; next = order.choose(now)) {
    victims.push_back(next.value);
    order.erase(next, facts.at(next));
  }
  return victims;
}

}  // namespace loci
