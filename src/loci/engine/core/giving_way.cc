// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/giving_way.h"

#include <algorithm>
#include <ranges>

#include "loci/base/check.h"

namespace loci {
namespace {

// Of the memory: who waits for no more than that waits shortly, as replies end all the time.
constexpr std::uint64_t kLargePart = 4;

}  // namespace

// What it keeps others from in a group's pool.
std::uint32_t GivingWay::blocks_held(const CoreRequest& request, std::uint32_t group) const {
  return windowed(group) ? request.windows->promised[group]
                         : static_cast<std::uint32_t>(request.blocks.size());
}

std::uint64_t GivingWay::blocks_needed(const CoreRequest& head, std::uint32_t group) const {
  const std::uint64_t blocks = (head.length() + kBlockTokens - 1) / kBlockTokens;
  return windows_.blocks_needed(group, blocks);
}

std::map<std::string, std::uint64_t> GivingWay::blocks_by_tenant(std::uint32_t group) const {
  std::map<std::string, std::uint64_t> held;
  for (const CoreRequest* request : batch_) held[request->tenant] += blocks_held(*request, group);
  return held;
}

CoreRequest* GivingWay::latest_of(const std::string& tenant) const {
  for (CoreRequest* request : std::views::reverse(batch_.requests())) {
    if (request->tenant == tenant) return request;
  }
  return nullptr;
}

CoreRequest& GivingWay::for_growth() const {
  LOCI_CHECK(batch_.size() > 1, "a request that is alone has the whole pool");
  const std::string* most = nullptr;
  std::uint64_t most_held = 0;
  const auto held = blocks_by_tenant(0);
  for (const auto& [tenant, blocks] : held) {
    if (most == nullptr || blocks * queue_.weight(*most) > most_held * queue_.weight(tenant)) {
      most = &tenant;
      most_held = blocks;
    }
  }
  return *latest_of(*most);
}

CoreRequest* GivingWay::for_place(const CoreRequest& head) const {
  if (!queue_.any_runs_several() || !queue_.below_slot_share(head.tenant)) return nullptr;
  CoreRequest* victim = nullptr;
  for (CoreRequest* request : batch_) {  // the latest arrival of the tenant furthest above its share
    if (request->tenant == head.tenant || !queue_.above_slot_share(request->tenant)) continue;
    if (victim == nullptr || std::uint64_t{queue_.running(request->tenant)} * victim->weight >=
                                 std::uint64_t{queue_.running(victim->tenant)} * request->weight) {
      victim = request;
    }
  }
  return victim;
}

std::uint64_t GivingWay::held_by_tenant(const CoreRequest& head, std::uint32_t group) const {
  std::uint64_t held = 0;
  for (const CoreRequest* request : batch_)
    if (request->tenant == head.tenant) held += blocks_held(*request, group);
  return held;
}

// Whether its tenant, which holds so many blocks, is above its share once it has what this one needs too.
bool GivingWay::above_share(const CoreRequest& head, std::uint32_t group, std::uint64_t held) const {
  return (held + blocks_needed(head, group)) * queue_.active_weight() >
         std::uint64_t{device_memory_.for_requests(group)} * head.weight;
}

bool GivingWay::lets_pass(const CoreRequest& head) const {
  if (head.passed_by >= head.length()) return false;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const bool is_large = blocks_needed(head, group) > device_memory_.for_requests(group) / kLargePart;
    if (is_large && above_share(head, group, held_by_tenant(head, group))) return true;
  }
  return false;
}

bool GivingWay::may_pass(const CoreRequest& head, std::span<CoreRequest* const> those) const {
  if (those.empty()) return true;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const std::uint64_t held = held_by_tenant(head, group);
    if (held > 0 && above_share(head, group, held)) return false;
  }
  return std::ranges::all_of(those, [&](const CoreRequest* one) {
    return head.gave_way_to != one->id && one->passed_by + head.length() <= one->length();
  });
}

GivingWay::Claim GivingWay::claim(const CoreRequest& head, std::uint32_t group) const {
  Claim claim{.group = group, .held = blocks_by_tenant(group), .weights = queue_.active_weight()};
  const auto own = claim.held.find(head.tenant);
  claim.within_share = own == claim.held.end() || !above_share(head, group, own->second);
  return claim;
}

CoreRequest* GivingWay::for_memory(const CoreRequest& head, const Claim& claim) const {
  if (!claim.within_share) return nullptr;
  const std::uint32_t group = claim.group;
  const std::uint64_t pool = config_.groups[group].block_count, total = device_memory_.for_requests(group);
  const std::uint64_t in_pool =
      windowed(group) ? pool - windows_.promised(group) : std::uint64_t{index_.available(group)};
  const std::uint64_t available = in_pool - std::min(in_pool, pool - total);
  if (available >= blocks_needed(head, group) + admission_.reserve(group, head)) return nullptr;
  CoreRequest* victim = nullptr;
  for (const auto& [tenant, has] : claim.held) {
    if (tenant == head.tenant || has * claim.weights <= total * queue_.weight(tenant)) continue;
    CoreRequest* latest = latest_of(tenant);
    // What it was given more than the one that waits pays for having its state again.
    const std::uint64_t again = cost_.tokens_to_restore(*latest) * kVirtualToken / latest->weight;
    if (queue_.virtual_time(tenant) < queue_.virtual_time(head.tenant) + again) continue;
    if (victim == nullptr || has * victim->weight > claim.held.at(victim->tenant) * latest->weight)
      victim = latest;
  }
  return victim;
}

}  // namespace loci
