// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed/published_chunks.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::size_t kPlacesLookedAt = 4 * kFeedEntriesMax;  // for a page

}  // namespace

PublishedChunks::PublishedChunks(const PublishedChunksOptions& options) : options_(options) {
  LOCI_CHECK(options.events_kept > 0 && options.of_block_max > 0 && options.chunks_max > 0 &&
                 options.chunks_max <= kFeedChunksMax,
             "there is room for chunks and events");
  chunks_.reserve(options.chunks_max);
  free_.reserve(options.chunks_max);
  chunk_of_.reserve(options.chunks_max);
  events_.reserve(options.events_kept);
}

void PublishedChunks::name(std::uint64_t chunk, const ChainKey& block, std::uint64_t tenant, Keep keep) {
  const std::uint64_t name = chunk & ~kTierBits;
  if (name == 0) return;
  if (const auto known = chunk_of_.find(name); known != chunk_of_.end()) {
    const std::uint32_t at = known->second;
    Tenant& owner = tenants_.at(chunks_[at].tenant);
    unlink(owner, at);
    link_youngest(owner, at);
    if (chunks_[at].block == block || (keep == Keep::kWhatIsThere && tier_of(chunks_[at].block))) return;
    make_room_at(block);
    places_.try_emplace(block);
    detach(at);
    attach(at, block);
    return;
  }
  make_room_at(block);
  if (chunk_of_.size() >= options_.chunks_max) drop(tenants_.at(tenants_ranks_.rbegin()->second).oldest);
  const std::uint32_t at = free_.empty() ? static_cast<std::uint32_t>(chunks_.size()) : free_.back();
  take_memory_for(name, at, block, tenant);
  if (free_.empty())
    chunks_.emplace_back();
  else
    free_.pop_back();
  chunks_[at] = Chunk{.name = name, .tenant = tenant, .block = {}, .told = {}};
  Tenant& owner = tenants_.at(tenant);
  link_youngest(owner, at);
  count_tenant(tenant, owner.count, owner.count + 1);
  attach(at, block);
}

void PublishedChunks::take_memory_for(std::uint64_t name, std::uint32_t at, const ChainKey& block,
                                      std::uint64_t tenant) {
  const auto place = places_.try_emplace(block).first;
  try {
    if (tenants_.try_emplace(tenant).second) tenants_ranks_.emplace(0, tenant);
    chunk_of_.emplace(name, at);
  } catch (...) {
    if (const auto owner = tenants_.find(tenant); owner != tenants_.end() && owner->second.count == 0)
      count_tenant(tenant, 0, 0);
    if (place->second.first == kNone && !place->second.tier) places_.erase(place);
    throw;
  }
}

void PublishedChunks::move(const BlockPlace& moved) {
  const auto at = places_.try_emplace(moved.key).first;
  at->second.tier = moved.tier;
  for (std::uint32_t chunk = at->second.first; chunk != kNone; chunk = chunks_[chunk].after)
    tell(chunk, moved.tier);
  if (!moved.tier && at->second.first == kNone) places_.erase(at);
}

void PublishedChunks::drop(std::uint32_t at) {
  detach(at);
  tell(at, std::nullopt);
  const std::uint64_t tenant = chunks_[at].tenant;
  Tenant& owner = tenants_.at(tenant);
  unlink(owner, at);
  count_tenant(tenant, owner.count, owner.count - 1);
  chunk_of_.erase(chunks_[at].name);
  chunks_[at] = {};
  free_.push_back(at);
}

void PublishedChunks::make_room_at(const ChainKey& block) {
  const auto place = places_.find(block);
  if (place == places_.end() || place->second.count < options_.of_block_max) return;
  std::uint32_t first_come = place->second.first;
  while (chunks_[first_come].after != kNone) first_come = chunks_[first_come].after;
  drop(first_come);
}

void PublishedChunks::attach(std::uint32_t at, const ChainKey& block) {
  Place& place = places_.at(block);
  Chunk& chunk = chunks_[at];
  chunk.block = block;
  chunk.before = kNone;
  chunk.after = std::exchange(place.first, at);
  if (chunk.after != kNone) chunks_[chunk.after].before = at;
  ++place.count;
  tell(at, place.tier);
}

void PublishedChunks::detach(std::uint32_t at) {
  const Chunk& chunk = chunks_[at];
  const auto place = places_.find(chunk.block);
  (chunk.before == kNone ? place->second.first : chunks_[chunk.before].after) = chunk.after;
  if (chunk.after != kNone) chunks_[chunk.after].before = chunk.before;
  --place->second.count;
  if (place->second.first == kNone && !place->second.tier) places_.erase(place);
}

void PublishedChunks::link_youngest(Tenant& tenant, std::uint32_t at) {
  chunks_[at].older = tenant.youngest;
  chunks_[at].younger = kNone;
  (tenant.youngest == kNone ? tenant.oldest : chunks_[tenant.youngest].younger) = at;
  tenant.youngest = at;
}

void PublishedChunks::unlink(Tenant& tenant, std::uint32_t at) {
  const Chunk& chunk = chunks_[at];
  (chunk.older == kNone ? tenant.oldest : chunks_[chunk.older].younger) = chunk.younger;
  (chunk.younger == kNone ? tenant.youngest : chunks_[chunk.younger].older) = chunk.older;
}

void PublishedChunks::count_tenant(std::uint64_t tenant, std::uint32_t before, std::uint32_t now) {
  auto rank = tenants_ranks_.extract({before, tenant});
  if (now == 0) {
    tenants_.erase(tenant);
    return;
  }
  rank.value().first = now;
  tenants_ranks_.insert(std::move(rank));
  tenants_.at(tenant).count = now;
}

std::optional<Tier> PublishedChunks::tier_of(const ChainKey& block) const {
  const auto place = places_.find(block);
  return place == places_.end() ? std::nullopt : place->second.tier;
}

void PublishedChunks::tell(std::uint32_t at, std::optional<Tier> tier) {
  Chunk& chunk = chunks_[at];
  if (chunk.told == tier) return;
  chunk.told = tier;
  const FeedEntry event = FeedEntry::of(chunk.name, tier);
  if (events_.size() < options_.events_kept)
    events_.push_back(event);
  else
    events_[last_ % options_.events_kept] = event;
  ++last_;
}

std::vector<FeedEntry> PublishedChunks::after(std::uint64_t number, std::size_t most) const {
  LOCI_CHECK(knows_after(number), "these events are known");
  const std::uint64_t end = number + std::min<std::uint64_t>(last_ - number, most);
  std::vector<FeedEntry> out;
  out.reserve(end - number);
  for (; number < end; ++number) out.push_back(events_[number % options_.events_kept]);
  return out;
}

std::uint32_t PublishedChunks::page(std::uint32_t place, std::vector<FeedEntry>& out) const {
  std::size_t at = place;
  const std::size_t end = std::min(chunks_.size(), at + kPlacesLookedAt);
  for (; at < end && out.size() < kFeedEntriesMax; ++at) {
    const Chunk& chunk = chunks_[at];
    if (chunk.told) out.push_back(FeedEntry::of(chunk.name, chunk.told));
  }
  return at < chunks_.size() ? static_cast<std::uint32_t>(at) : 0;
}

void PublishedChunks::check_invariants() const {
  std::size_t of_blocks = 0, of_tenants = 0;
  for (const auto& [key, place] : places_) {
    LOCI_CHECK(place.tier || place.first != kNone, "a place has a block or chunks");
    std::uint32_t before = kNone, count = 0;
    for (std::uint32_t at = place.first; at != kNone; before = std::exchange(at, chunks_[at].after)) {
      LOCI_CHECK(chunks_[at].block == key && chunks_[at].before == before, "invariant 2");
      LOCI_CHECK(chunks_[at].told == place.tier, "invariant 1");
      ++count;
    }
    LOCI_CHECK(count == place.count && count <= options_.of_block_max, "invariant 2");
    of_blocks += count;
  }
  for (const auto& [id, tenant] : tenants_) {
    std::uint32_t older = kNone, count = 0;
    for (std::uint32_t at = tenant.oldest; at != kNone; older = std::exchange(at, chunks_[at].younger)) {
      LOCI_CHECK(chunks_[at].tenant == id && chunks_[at].older == older, "invariant 3");
      ++count;
    }
    LOCI_CHECK(count == tenant.count && older == tenant.youngest && tenants_ranks_.contains({count, id}),
               "invariant 3");
    of_tenants += count;
  }
  LOCI_CHECK(of_blocks == chunk_of_.size() && of_blocks + free_.size() == chunks_.size(), "invariant 2");
  LOCI_CHECK(of_tenants == chunk_of_.size() && tenants_ranks_.size() == tenants_.size(), "invariant 3");
  LOCI_CHECK(chunk_of_.size() <= options_.chunks_max && events_.size() <= options_.events_kept,
             "there are bounds");
}

}  // namespace loci
