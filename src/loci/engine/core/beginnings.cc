// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/beginnings.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "loci/base/check.h"

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
      if (index_.available(group) < 1 + admission_.reserve(group, request)) return false;
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

void Beginnings::check_invariants(const CoreRequest& request, Nanos now) const {
  const std::optional<CoreBeginning>& found = request.beginning->found;
  const bool waits = request.before_queue->for_beginning;
  LOCI_CHECK(!waits || (found && *request.before_queue->until <= now + kWaitMax),
             "invariant 7: who waits for a beginning has found one, and does so for a while");
  if (!found) return;
  const std::size_t begin = std::size_t{found->number} * kBlockTokens;
  LOCI_CHECK(
      found->there < found->run && found->run <= kBlockTokens && begin + found->run <= request.tokens.size(),
      "invariant 4: a beginning has tokens of its request that the device lacked");
  const BlockId id = index_.find(found->key);
  if (id == kNoBlock) return;
  const Block& block = index_.block(id);
  LOCI_CHECK(block.depth == found->number + 1 &&
                 std::equal(block.tokens.begin(), block.tokens.begin() + found->run,
                            request.tokens.begin() + static_cast<std::ptrdiff_t>(begin)),
             "invariant 4: a beginning spells its request's tokens, at their position");
}

}  // namespace loci
