// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed/block_feed.h"

#include <algorithm>
#include <array>
#include <utility>

#include "loci/base/check.h"
#include "loci/policy/routing/named_chunks.h"

namespace loci {
namespace {

// Who waits for a mutex waits for so many chunks or places at most.
constexpr std::size_t kStep = 256;
constexpr std::size_t kQueued = 16 * kStep;
constexpr std::uint32_t kTypicalContext = 2'048;  // tokens before those whose computing is counted
constexpr std::uint32_t kBlocksTogether = 64;     // that are computed or loaded at once

std::uint32_t in_microseconds(Nanos time) {
  return static_cast<std::uint32_t>(std::clamp<Nanos>(time / 1'000, 1, UINT32_MAX));
}

// The block with the last token of the first `bytes` bytes of the text.
std::size_t block_at(const PromptNames& text, std::uint64_t bytes, std::size_t tokens, std::size_t blocks) {
  const std::uint64_t end = std::min(bytes, text.bytes);
  const auto token = static_cast<std::uint64_t>(static_cast<unsigned __int128>(tokens) * end / text.bytes);
  return std::min<std::uint64_t>((std::max<std::uint64_t>(token, 1) - 1) / kBlockTokens, blocks - 1);
}

}  // namespace

BlockFeed::BlockFeed(const BlockFeedOptions& options)
    : options_(options), queue_(kQueued), chunks_(options.chunks) {
  LOCI_CHECK(options.epoch != 0, "a feed has an epoch");
}

// --- what comes in ---

void BlockFeed::prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) {
  if (keys.empty()) return;
  std::vector<Change> told;
  const auto add = [&](std::uint64_t name, const ChainKey& block, PublishedChunks::Keep keep) {
    if (name != 0)
      told.push_back({.block = block, .name = name, .tenant = text.tenant, .tier = {}, .keep = keep});
  };
  for (const std::uint64_t name : text.ends) add(name, keys.back(), PublishedChunks::Keep::kNothing);
  // From the end, so that of one prompt the beginning is the youngest.
  std::size_t last_block = keys.size(), of_block = 0;
  for (std::size_t left = text.bytes > 0 ? text.chunks.size() : 0; left > 0; --left) {
    const std::size_t block = block_at(text, chunks_of_names(left) * text.chunk_bytes, tokens, keys.size());
    of_block = block == std::exchange(last_block, block) ? of_block + 1 : 1;
    if (of_block > options_.chunks.of_block_max) continue;
    add(text.chunks[left - 1], keys[block], PublishedChunks::Keep::kWhatIsThere);
  }
  tell(told);
}

void BlockFeed::moved(std::span<const BlockPlace> places) {
  std::array<Change, kStep> told;
  while (!places.empty()) {
    const std::size_t count = std::min(places.size(), told.size());
    for (std::size_t i = 0; i < count; ++i) told[i] = {.block = places[i].key, .tier = places[i].tier};
    tell(std::span(told).first(count));
    places = places.subspan(count);
  }
}

void BlockFeed::costs(const CostCurves& curves) {
  const MutexLock lock(queue_mutex_);
  curves_ = curves;
}

// --- the queue ---

void BlockFeed::tell(std::span<const Change> told) {
  while (true) {
    {
      const MutexLock lock(queue_mutex_);
      for (; !told.empty() && queue_count_ < kQueued; told = told.subspan(1), ++queue_count_)
        queue_[(queue_begin_ + queue_count_) % kQueued] = told.front();
    }
    if (told.empty()) return;
    take_step();
  }
}

bool BlockFeed::take_step() {
  std::array<Change, kStep> step;
  std::size_t count = 0;
  {
    MutexLock lock(queue_mutex_);
    step_ended_.wait(lock, [this]() REQUIRES(queue_mutex_) { return !takes_step_; });
    if (queue_count_ == 0) return false;
    takes_step_ = true;
    for (; count < std::min(kStep, queue_count_); ++count)
      step[count] = queue_[(queue_begin_ + count) % kQueued];
  }
  std::size_t taken = 0;
  try {
    const MutexLock lock(mutex_);
    for (; taken < count; ++taken) {
      const Change& told = step[taken];
      if (told.name == 0)
        chunks_.move({told.block, told.tier});
      else
        chunks_.name(told.name, told.block, told.tenant, told.keep);
    }
  } catch (...) {
    end_step(taken);  // without it everybody would wait for this step's end
    throw;
  }
  end_step(taken);
  return true;
}

void BlockFeed::end_step(std::size_t taken) {
  {
    const MutexLock lock(queue_mutex_);
    queue_begin_ = (queue_begin_ + taken) % kQueued;
    queue_count_ -= taken;
    takes_step_ = false;
  }
  step_ended_.notify_all();
}

// No more than was there, so that it comes to an end however much is told meanwhile.
void BlockFeed::catch_up() {
  for (std::size_t steps = kQueued / kStep + 1; steps > 0 && take_step();) --steps;
}

// --- what is told ---

FeedCosts BlockFeed::costs_now() const {
  CostCurves curves;
  {
    const MutexLock lock(queue_mutex_);
    curves = curves_;
  }
  if (options_.peer_read) curves.shared_read = *options_.peer_read;
  const CostModel model(curves);
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
  catch_up();
  FeedChanges out{.epoch = options_.epoch, .last = 0, .costs = costs_now(), .changes = {}};
  const MutexLock lock(mutex_);
  if (question.epoch != options_.epoch || !chunks_.knows_after(question.after)) {
    out.last = chunks_.last();
    out.is_gap = true;
    ++gaps_;
    return out;
  }
  out.changes = chunks_.after(question.after, kFeedEntriesMax);
  out.last = question.after + out.changes.size();
  return out;
}

FeedPage BlockFeed::page(const FeedPageQuestion& question) {
  catch_up();
  const MutexLock lock(mutex_);
  FeedPage out{.epoch = options_.epoch, .last = chunks_.last(), .next = 0, .entries = {}};
  out.next = chunks_.page(question.place, out.entries);
  return out;
}

FeedStats BlockFeed::stats() {
  catch_up();
  const MutexLock lock(mutex_);
  return {.changes_total = chunks_.last(), .gaps_total = gaps_, .chunks = chunks_.size()};
}

void BlockFeed::check_invariants() const {
  const MutexLock lock(mutex_);
  chunks_.check_invariants();
}

}  // namespace loci
