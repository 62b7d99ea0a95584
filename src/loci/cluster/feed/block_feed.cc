// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed/block_feed.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// Who waits for the mutex waits for so many chunks or places at most.
constexpr std::size_t kStep = 256;
constexpr std::size_t kPlacesLookedAt = 4 * kFeedEntriesMax;  // for a page
constexpr std::uint32_t kTypicalContext = 2'048;  // tokens before those whose computing is counted
constexpr std::uint32_t kBlocksTogether = 64;     // that are computed or loaded at once

std::uint32_t in_microseconds(Nanos time) {
  return static_cast<std::uint32_t>(std::clamp<Nanos>(time / 1'000, 1, UINT32_MAX));
}

}  // namespace

BlockFeed::BlockFeed(const BlockFeedOptions& options) : options_(options) {
  LOCI_CHECK(options.epoch != 0 && options.events_kept > 0 && options.chunks_max > 0 &&
                 options.chunks_max <= kFeedChunksMax,
             "a feed has an epoch, and room");
}

// --- what comes in ---

void BlockFeed::prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) {
  if (keys.empty()) return;
  {
    const MutexLock lock(mutex_);
    for (const std::uint64_t name : text.ends) name_chunk(name, keys.back(), Keep::kNothing);
    if (text.chunks.empty() || text.bytes == 0) return;
  }
  // From the end, so that of one prompt the beginning is the youngest.
  for (std::size_t left = std::min<std::size_t>(text.chunks.size(), options_.chunks_max); left > 0;) {
    const MutexLock lock(mutex_);
    for (std::size_t count = std::min(left, kStep); count > 0; --count, --left) {
      const std::uint64_t end = std::min<std::uint64_t>(left * text.chunk_bytes, text.bytes);
      const std::uint64_t token = static_cast<std::uint64_t>(static_cast<unsigned __int128>(tokens) * end /
                                                             text.bytes);  // the first one behind it
      const std::uint64_t block = (std::max<std::uint64_t>(token, 1) - 1) / kBlockTokens;
      name_chunk(text.chunks[left - 1], keys[std::min<std::uint64_t>(block, keys.size() - 1)],
                 Keep::kWhatIsThere);
    }
  }
}

void BlockFeed::moved(std::span<const BlockPlace> places) {
  while (!places.empty()) {
    const std::span<const BlockPlace> step = places.first(std::min(places.size(), kStep));
    places = places.subspan(step.size());
    const MutexLock lock(mutex_);
    for (const BlockPlace& moved : step) {
      const auto at = places_.try_emplace(moved.key).first;
      at->second.tier = moved.tier;
      for (std::uint32_t chunk = at->second.first; chunk != kNone; chunk = chunks_[chunk].after)
        tell(chunk, moved.tier);
      if (!moved.tier && at->second.first == kNone) places_.erase(at);
    }
  }
}

void BlockFeed::costs(const CostCurves& curves) {
  const MutexLock lock(mutex_);
  curves_ = curves;
}

// --- chunks ---

void BlockFeed::name_chunk(std::uint64_t name, const ChainKey& block, Keep keep) {
  name &= ~std::uint64_t{3};
  if (name == 0) return;
  if (const auto known = chunk_of_.find(name); known != chunk_of_.end()) {
    const std::uint32_t at = known->second;
    unlink(at);
    link_youngest(at);
    if (chunks_[at].block == block || (keep == Keep::kWhatIsThere && tier_of(chunks_[at].block))) return;
    detach(at);
    attach(at, block);
    return;
  }
  if (chunk_of_.size() >= options_.chunks_max) drop_chunk(oldest_);
  std::uint32_t at = static_cast<std::uint32_t>(chunks_.size());
  if (free_.empty()) {
    chunks_.emplace_back();
  } else {
    at = free_.back();
    free_.pop_back();
  }
  chunks_[at] = Chunk{.name = name, .block = {}, .told = {}};
  chunk_of_.emplace(name, at);
  link_youngest(at);
  attach(at, block);
}

void BlockFeed::drop_chunk(std::uint32_t at) {
  detach(at);
  tell(at, std::nullopt);
  unlink(at);
  chunk_of_.erase(chunks_[at].name);
  chunks_[at] = {};
  free_.push_back(at);
}

void BlockFeed::attach(std::uint32_t at, const ChainKey& block) {
  Place& place = places_[block];
  Chunk& chunk = chunks_[at];
  chunk.block = block;
  chunk.before = kNone;
  chunk.after = std::exchange(place.first, at);
  if (chunk.after != kNone) chunks_[chunk.after].before = at;
  tell(at, place.tier);
}

void BlockFeed::detach(std::uint32_t at) {
  const Chunk& chunk = chunks_[at];
  const auto place = places_.find(chunk.block);
  (chunk.before == kNone ? place->second.first : chunks_[chunk.before].after) = chunk.after;
  if (chunk.after != kNone) chunks_[chunk.after].before = chunk.before;
  if (place->second.first == kNone && !place->second.tier) places_.erase(place);
}

void BlockFeed::link_youngest(std::uint32_t at) {
  chunks_[at].older = youngest_;
  chunks_[at].younger = kNone;
  (youngest_ == kNone ? oldest_ : chunks_[youngest_].younger) = at;
  youngest_ = at;
}

void BlockFeed::unlink(std::uint32_t at) {
  const Chunk& chunk = chunks_[at];
  (chunk.older == kNone ? oldest_ : chunks_[chunk.older].younger) = chunk.younger;
  (chunk.younger == kNone ? youngest_ : chunks_[chunk.younger].older) = chunk.older;
}

std::optional<Tier> BlockFeed::tier_of(const ChainKey& block) const {
  const auto place = places_.find(block);
  return place == places_.end() ? std::nullopt : place->second.tier;
}

void BlockFeed::tell(std::uint32_t at, std::optional<Tier> tier) {
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

// --- what is told ---

FeedCosts BlockFeed::costs_now() const {
  const CostModel model(curves_);
  const auto of_chunk = [](Nanos of_blocks) {
    return in_microseconds(of_blocks / (kBlocksTogether * kBlockTokens / kFeedChunkTokens));
  };
  const std::uint64_t bytes = options_.block_bytes * kBlocksTogether;
  const auto load = [&](Tier tier) {
    return of_chunk(std::min(kCostMax, model.load(tier, bytes) + model.load_charge(tier, bytes)));
  };
  return {.compute_us = of_chunk(model.compute(kTypicalContext, kBlocksTogether * kBlockTokens)),
          .host_us = load(Tier::kHost),
          .disk_us = load(Tier::kDisk),
          .peer_us = load(Tier::kShared)};
}

FeedChanges BlockFeed::changes(const FeedQuestion& question) {
  const MutexLock lock(mutex_);
  FeedChanges out{.epoch = options_.epoch, .last = last_, .costs = costs_now(), .changes = {}};
  const std::uint64_t first_kept = last_ - events_.size();  // who has seen those up to it misses none
  if (question.epoch != options_.epoch || question.after > last_ || question.after < first_kept) {
    out.is_gap = true;
    ++gaps_;
    return out;
  }
  const std::uint64_t count = std::min<std::uint64_t>(last_ - question.after, kFeedEntriesMax);
  out.last = question.after + count;
  out.changes.reserve(count);
  for (std::uint64_t number = question.after; number < out.last; ++number)
    out.changes.push_back(events_[number % options_.events_kept]);
  return out;
}

FeedPage BlockFeed::page(const FeedPageQuestion& question) const {
  const MutexLock lock(mutex_);
  FeedPage out{.epoch = options_.epoch, .last = last_, .next = 0, .entries = {}};
  std::size_t at = question.place;
  const std::size_t end = std::min(chunks_.size(), at + kPlacesLookedAt);
  for (; at < end && out.entries.size() < kFeedEntriesMax; ++at) {
    const Chunk& chunk = chunks_[at];
    if (chunk.told) out.entries.push_back(FeedEntry::of(chunk.name, chunk.told));
  }
  if (at < chunks_.size()) out.next = static_cast<std::uint32_t>(at);
  return out;
}

BlockFeedStats BlockFeed::stats() const {
  const MutexLock lock(mutex_);
  return {
      .changes_total = last_, .gaps_total = gaps_, .chunks = static_cast<std::uint32_t>(chunk_of_.size())};
}

void BlockFeed::check_invariants() const {
  const MutexLock lock(mutex_);
  std::size_t of_blocks = 0;
  for (const auto& [key, place] : places_) {
    LOCI_CHECK(place.tier || place.first != kNone, "a place has a block or chunks");
    std::uint32_t before = kNone;
    for (std::uint32_t at = place.first; at != kNone; before = std::exchange(at, chunks_[at].after)) {
      LOCI_CHECK(chunks_[at].block == key && chunks_[at].before == before, "invariant 2");
      LOCI_CHECK(chunks_[at].told == place.tier, "invariant 1");
      ++of_blocks;
    }
  }
  LOCI_CHECK(of_blocks == chunk_of_.size() && of_blocks + free_.size() == chunks_.size(), "invariant 2");
  LOCI_CHECK(chunk_of_.size() <= options_.chunks_max && events_.size() <= options_.events_kept,
             "a feed has bounds");
}

}  // namespace loci
