// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/beginnings.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "loci/base/check.h"

namespace loci {

bool Beginnings::begin(CoreRequest& request, bool in_flight) {
  if (request.is_public || !config_.reuse || device_memory_.limited()) return false;
  const Tier slowest = restores_.slowest_for(request);
  if (slowest == Tier::kDevice || !prefixes_.may_have_beginning(request, slowest)) return false;
  const CoreProbes probes = restores_.choose(request, {.slowest = slowest, .in_flight = in_flight});
  const std::optional<CoreBeginning> found = find(request, probes, slowest);
  if (!found || !restores_.worth_loading(*found)) return false;
  if (!transfers_.loading(found->block)) {
    const std::vector<BlockPin> there = admission_.hold_there(probes);
    if (!admission_.has_room_to_copy(request, probes)) return false;
    transfers_.load_first({.key = found->key, .node = found->block});
  }
  request.beginning.change().found = found;
  return true;
}

std::optional<CoreBeginning> Beginnings::find(const CoreRequest& request, const CoreProbes& probes,
                                              Tier slowest) const {
  const std::uint32_t unknown = Prefixes::first_unknown(probes);
  if (!places_.any_windows()) return prefixes_.find_beginning(request, probes, unknown, slowest);
  const std::uint32_t start = probes.start / kBlockTokens;
  // From the last on; none before where the request goes on anyway.
  const std::uint32_t first = std::max(start, probes.public_blocks);
  for (std::uint32_t left = unknown + 1; left > first; --left) {
    const std::uint32_t number = left - 1;
    if (number != unknown && !is_computed(probes, number, slowest)) continue;
    std::optional<CoreBeginning> found = prefixes_.find_beginning(request, probes, number, slowest);
    if (!found || !places_.can_start(probes, number, found->run, slowest)) continue;
    found->there = number == start ? probes.start % kBlockTokens : 0;
    found->computed_from = probes.start;
    if (found->run > found->there) return found;
  }
  return std::nullopt;
}

bool Beginnings::is_computed(const CoreProbes& probes, std::uint32_t number, Tier slowest) const {
  const BlockId node = probes.blocks[number].node;
  const BlockId parent = prefixes_.find_parent(probes, number);
  return parent != kNoBlock && index_.block(parent).full_children.size() > 1 &&
         (!index_.block(node).has_part() || prefixes_.lacks_a_group(node)) &&
         !transfers_.comes(node, slowest);
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
