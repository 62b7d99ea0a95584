// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/queue_needs.h"

#include <algorithm>
#include <iterator>

#include "loci/base/check.h"
#include "loci/engine/core/request.h"
#include "loci/policy/lookahead.h"

namespace loci {
namespace {

// Of the window's first requests those that lacked something look again whenever the queue changes: whoever
// computes it may have begun.
constexpr std::size_t kLookAgain = 32;
// Of them so many are prefetched again: what the host had of them may have given way to what is saved.
constexpr std::size_t kPrefetchAgain = 4;

std::uint32_t place_of(std::uint64_t arrival) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(arrival, kNotWanted - 1));
}

}  // namespace

QueueNeeds::QueueNeeds(const CoreConfig& config, BlockIndex& index, Transfers& transfers,
                       const Prefixes& prefixes)
    : config_(config), index_(index), transfers_(transfers), prefixes_(prefixes) {}

// The block's id may be another one's by now.
bool QueueNeeds::still_there(const std::pair<BlockId, ChainKey>& wanted) const {
  const Block& block = index_.block(wanted.first);
  return block.kind == BlockKind::kFull && block.key == wanted.second;
}

void QueueNeeds::set_wanted(const std::pair<BlockId, ChainKey>& wanted, std::uint32_t place) {
  if (still_there(wanted)) index_.set_wanted(wanted.first, place);
}

void QueueNeeds::list_wants(std::uint64_t arrival, Waiting& waiting, const FindWaiting& find) {
  CoreRequest& request = *find(waiting.id);
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  while (waiting.wants.size() < keys.size()) {
    const auto number = static_cast<std::uint32_t>(waiting.wants.size());
    BlockId block = index_.find(keys[number]);
    if (block == kNoBlock) block = prefixes_.original_of(request, number);
    if (block == kNoBlock) break;
    const ChainKey key = index_.block(block).key;
    std::set<std::uint64_t>& wanters = wanters_[key];
    wanters.insert(arrival);
    set_wanted(waiting.wants.emplace_back(block, key), place_of(*wanters.begin()));
    ++wants_;
    prefetched_ = false;
  }
}

void QueueNeeds::unlist_wants(std::uint64_t arrival, Waiting& waiting) {
  for (const auto& wanted : waiting.wants) {
    const auto wanters = wanters_.find(wanted.second);
    wanters->second.erase(arrival);
    const bool last = wanters->second.empty();
    set_wanted(wanted, last ? kNotWanted : place_of(*wanters->second.begin()));
    if (last) wanters_.erase(wanters);
  }
  wants_ -= waiting.wants.size();
  waiting.wants.clear();
  waiting.prefetched = 0;
}

void QueueNeeds::take_changes(const FindWaiting& find) {
  for (const auto& [arrival, id] : changes_) {
    const CoreRequest* const request = find(id);
    const auto known = waiting_.find(arrival);
    if (request != nullptr && known == waiting_.end()) {
      waiting_.emplace(arrival, Waiting{.id = id, .wants = {}});
    } else if (request == nullptr && known != waiting_.end()) {
      unlist_wants(arrival, known->second);
      window_count_ -= known->second.in_window ? 1 : 0;
      waiting_.erase(known);
    }
  }
  changes_.clear();
}

void QueueNeeds::move_window(const FindWaiting& find) {
  std::uint64_t block = 0, host = 0, disk = 0, blocks = 0;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const std::uint64_t bytes = config_.groups[group].block_bytes;
    const TierUse on_host = index_.use(Tier::kHost, group), on_disk = index_.use(Tier::kDisk, group);
    block += bytes;
    host += bytes * on_host.slots;
    disk += bytes * on_disk.slots;
    blocks = std::max<std::uint64_t>(blocks, std::uint64_t{on_host.slots} + on_disk.slots);
  }
  // (Of the first who come nothing is known of sessions.)
  const std::uint64_t session = std::max(1u, index_.mean_session_blocks()) * block;
  prefetch_window_ = prefetch_window(host, session);
  const std::uint32_t window = std::min(config_.lookahead_requests, eviction_window(host, disk, session));

  // Who came back is before the window's end and not in it yet; who came last is behind it.
  std::size_t looked = 0;
  for (auto next = waiting_.begin(); next != waiting_.end() && looked < kLookAgain; ++next, ++looked) {
    if (next->first >= window_end_) break;
    if (!next->second.in_window) ++window_count_;
    next->second.in_window = true;
    list_wants(next->first, next->second, find);
    if (looked < kPrefetchAgain) next->second.prefetched = 0;
  }
  for (auto next = waiting_.lower_bound(window_end_);
       next != waiting_.end() && window_count_ < window && wants_ < blocks; ++next) {
    next->second.in_window = true;
    ++window_count_;
    list_wants(next->first, next->second, find);
    window_end_ = next->first + 1;
  }
  while (window_count_ > window) {
    const auto last = std::prev(waiting_.lower_bound(window_end_));
    unlist_wants(last->first, last->second);
    if (last->second.in_window) --window_count_;
    last->second.in_window = false;
    window_end_ = last->first;
  }
  prefetched_ = false;
}

void QueueNeeds::look(const FindWaiting& find) {
  if (!index_.has_tier(Tier::kHost) && !index_.has_tier(Tier::kDisk)) changes_.clear();
  if (changes_.empty()) return;
  take_changes(find);
  move_window(find);
}

void QueueNeeds::prefetch() {
  if (!index_.has_tier(Tier::kHost) || prefetched_ || transfers_.slowest_own() != Tier::kDisk) return;
  std::uint32_t looked = 0;
  for (auto& [arrival, waiting] : waiting_) {
    if (looked++ >= prefetch_window_ || arrival >= window_end_) break;
    for (; waiting.prefetched < waiting.wants.size(); ++waiting.prefetched) {
      if (!transfers_.may_begin()) return;
      const auto& wanted = waiting.wants[waiting.prefetched];
      if (still_there(wanted) && !transfers_.prefetch(wanted.first)) {
        prefetched_ = true;  // what comes later has no more right to room
        return;
      }
    }
  }
  prefetched_ = true;
}

void QueueNeeds::check_invariants(const FindWaiting& find) const {
  std::uint64_t in_window = 0, wants = 0;
  for (const auto& [arrival, waiting] : waiting_) {
    in_window += waiting.in_window ? 1 : 0;
    wants += waiting.wants.size();
    LOCI_CHECK(waiting.in_window || waiting.wants.empty(), "who is outside the window wants nothing");
    LOCI_CHECK(!waiting.in_window || arrival < window_end_, "the window ends behind its last");
    for (const auto& wanted : waiting.wants) {
      LOCI_CHECK(wanters_.at(wanted.second).contains(arrival), "a block knows who wants it");
    }
    LOCI_CHECK(find(waiting.id) != nullptr, "who waits is there and does not run");
  }
  LOCI_CHECK(in_window == window_count_ && wants == wants_, "sums are sums");
}

}  // namespace loci
