// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/preloads.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/policy/policy_set.h"

namespace loci {
namespace {

// begin() looks at whole requests until these have so many blocks together, and leaves the others to the next
// step, because events wait for it: about a microsecond for each block.
constexpr std::size_t kBlocksOfAStep = 128;
// begin_behind_first() looks at no request with more blocks.
constexpr std::size_t kBlocksBehindFirst = 256;
// So many requests that wait for the end of a sequence have the rest brought behind it, one of each tenant.
constexpr std::size_t kBehindFirstMost = 4;

}  // namespace

Preloads::Preloads(const CoreConfig& config, Transfers& transfers, const DeviceMemory& device_memory,
                   const Restores& restores, Admission& admission, const Batch& batch, FairQueue& queue,
                   const BeforeQueue& before_queue, QueueNeeds& queue_needs, const PassFormer& former)
    : transfers_(transfers),
      device_memory_(device_memory),
      restores_(restores),
      admission_(admission),
      batch_(batch),
      queue_(queue),
      before_queue_(before_queue),
      queue_needs_(queue_needs),
      former_(former),
      off_(config.preload == "off"),
      bounded_(config.preload == "buffer"),
      retries_(config.preload_retries) {}

void Preloads::begin(const Find& find, std::uint64_t room_changes, bool pass_waits) {
  has_more_ = false;
  const bool may_wait = pass_waits && !std::exchange(put_off_, false);
  put_off_ = false;
  if (off_ || queue_.empty()) return;
  std::uint32_t again = 0;
  std::size_t looked = 0;               // at blocks
  std::optional<std::uint64_t> booked;  // the tokens that running prompts lack
  for (const FairQueue::Head& head : queue_.heads(kPreloadHeads)) {
    CoreRequest& request = find(head.request);
    if (request.is_public || request.preload->seen == room_changes) continue;
    if (request.preload->seen != 0 && (!request.preload->lacks || again++ >= retries_)) continue;
    if (may_wait || looked >= kBlocksOfAStep) {
      has_more_ = true;
      put_off_ = may_wait;
      return;
    }
    looked += request.length() / kBlockTokens;
    request.preload.change().seen = room_changes;
    if (!booked) booked = former_.prompt_tokens();
    if (begin_loads_of(request, *booked)) booked.reset();
  }
}

void Preloads::begin_behind_first(CoreRequest& request, std::uint64_t room_changes) {
  // Of several of a tenant's, who comes first is for the queue to say.
  if (before_queue_.waiting(BeforeQueue::For::kBeginning) > kBehindFirstMost ||
      before_queue_.waiting(request.tenant) != 1)
    return;
  if (off_ || !queue_.empty() || request.length() / kBlockTokens > kBlocksBehindFirst) return;
  request.preload.change().seen = room_changes;
  begin_loads_of(request, former_.prompt_tokens());
}

// `booked`: the tokens that running prompts lack. True: loads have begun, so they may lack fewer.
bool Preloads::begin_loads_of(CoreRequest& request, std::uint64_t booked) {
  Restores::Rules rules{.slowest = restores_.slowest_ahead(request), .in_flight = true};
  if (request.before_queue->for_beginning) rules.coming = &*request.beginning->found;
  CoreProbes probes = restores_.choose(request, rules);
  restores_.plan(request, probes, rules, Restores::load_beside(request, batch_, queue_, booked));
  const std::vector<BlockPin> there = admission_.hold_there(probes);
  const std::vector<std::uint32_t> begins = restores_.to_preload(request, probes);
  RequestPreload& preload = request.preload.change();
  preload.lacks = true;
  if (device_memory_.limited()) return false;  // it would take memory before its time
  if (!admission_.has_room_ahead(request, probes, begins)) return false;
  const std::vector<BlockPin> opened = admission_.open_rotated(request, probes, begins);
  std::vector<CoreProbe> ahead;
  ahead.reserve(begins.size());
  for (const std::uint32_t i : begins) ahead.push_back(probes.blocks[i]);
  const std::vector<Tier> from = transfers_.load_ahead(ahead);
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    preload.blocks.resize(std::max<std::size_t>(preload.blocks.size(), begins[i] + 1));
    RequestPreload::Loaded& known = preload.blocks[begins[i]];
    if (!known.from || known.key != ahead[i].key) known = {ahead[i].key, from[i]};
    if (ahead[i].original != kNoBlock) queue_needs_.rotated(request.arrival, begins[i], ahead[i].node);
  }
  const bool bounded = bounded_ && !begins.empty();
  const auto is_lacking = [&](const CoreProbe& found) {
    if (found.node == kNoBlock || transfers_.loading(found.node)) return false;
    return found.too_slow || restores_.is_for_later(request, found.node) ||
           (found.load && transfers_.load_tier_now(found) != Tier::kDevice);
  };
  preload.lacks = !bounded && std::ranges::any_of(probes.blocks, is_lacking);
  return !ahead.empty();
}

void Preloads::check_invariants(const CoreRequest& request) const {
  const RequestPreload& preload = *request.preload;
  LOCI_CHECK(!off_ || preload.seen == 0, "invariant 7: where loads ahead are off nobody is looked up");
  LOCI_CHECK(preload.seen > 0 || (!preload.lacks && preload.blocks.empty()),
             "invariant 7: who was never looked up lacks nothing");
  LOCI_CHECK(preload.blocks.size() <= request.length() / kBlockTokens,
             "invariant 10: what was loaded for a request are its blocks");
}

}  // namespace loci
