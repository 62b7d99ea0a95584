// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/belady.h"

#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace loci::sim {

std::uint64_t most_found(std::span<const BlockUse> uses, std::uint64_t slots) {
  const std::size_t never = uses.size();
  std::vector<std::size_t> next(uses.size(), never);
  std::unordered_map<std::uint64_t, std::size_t> needed_at;  // never iterated
  for (std::size_t i = uses.size(); i > 0; --i) {
    const BlockUse& use = uses[i - 1];
    const auto found = needed_at.find(use.block);
    if (found != needed_at.end()) next[i - 1] = found->second;
    if (use.needed) {
      needed_at[use.block] = i - 1;
    } else {
      needed_at.erase(use.block);  // it is made there in any case, so nobody needs to hold it until then
    }
  }
  std::set<std::pair<std::size_t, std::uint64_t>> held;  // by next use
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const BlockUse& use = uses[i];
    if (use.needed) {
      found += held.erase({i, use.block});  // held blocks wait for their next use, which this is
    } else if (held.contains({next[i], use.block})) {
      continue;
    }
    if (next[i] == never || slots == 0) continue;
    if (held.size() == slots) {
      const auto last = std::prev(held.end());
      if (last->first < next[i]) continue;
      held.erase(last);
    }
    held.emplace(next[i], use.block);
  }
  return found;
}

}  // namespace loci::sim
