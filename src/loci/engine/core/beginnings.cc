// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/beginnings.h"

#include <optional>
#include <vector>

namespace loci {

bool Beginnings::begin(CoreRequest& request, bool in_flight) {
  if (windows_.any() || request.is_public || !config_.reuse || device_memory_.limited()) return false;
  const Tier slowest = restores_.slowest_for(request);
  if (slowest == Tier::kDevice || !prefixes_.may_have_beginning(request, slowest)) return false;
  const CoreProbes probes = restores_.choose(request, {.slowest = slowest, .in_flight = in_flight});
  const std::optional<CoreBeginning> found = prefixes_.find_beginning(request, probes, slowest);
  if (!found || !restores_.worth_loading(*found)) return false;
  if (!transfers_.loading(found->block)) {
    const std::vector<BlockPin> there = admission_.hold_there(probes);
    for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
      if (index_.available(group) < 1 + admission_.reserve(group)) return false;
    }
    transfers_.load_first({.key = found->key, .node = found->block});
  }
  request.beginning.change().found = found;
  return true;
}

bool Beginnings::has_come(const CoreRequest& request) const {
  const BlockId block = index_.find(request.beginning->found->key);
  return block == kNoBlock || !transfers_.loading(block);
}

}  // namespace loci
