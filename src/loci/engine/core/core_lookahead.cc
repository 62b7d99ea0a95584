// SPDX-License-Identifier: Apache-2.0
// Looking ahead into the queue (AttentionStore §3.3): what waiting requests need is evicted last, and what of
// it is on the disk alone is brought into host memory before their turn comes.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"
#include "loci/policy/lookahead.h"

namespace loci {
namespace {

// Of a window's blocks, for each request that it may hold in the mean: 16,384 tokens.
constexpr std::uint64_t kWindowBlocksPerRequest = 512;
// Of the window's first requests those that lacked something look again whenever the queue changes: whoever
// computes it may have begun.
constexpr std::size_t kLookAgain = 32;

// A place in the queue that does not change as others leave it: the arrival.
std::uint32_t place_of(std::uint64_t arrival) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(arrival, kNotWanted - 1));
}

}  // namespace

// The keys of a waiting request's whole blocks; those that are public are so as of the first call.
const std::vector<ChainKey>& Core::State::keys_of(CoreRequest& request) const {
  const std::uint32_t shared = (request.length() - 1) / kBlockTokens;
  if (request.keys.size() == shared) return request.keys;
  CoreProbes probes;
  probe_public(request, probes);
  ChainKey key = probes.root;
  request.keys.clear();
  for (const CoreProbe& found : probes.blocks) request.keys.push_back(found.key);
  for (std::uint32_t i = probes.public_blocks; i < shared; ++i) {
    if (begins_lineage(request.lineage.get(), i)) key = request.lineage->gate;
    key =
        hasher_.child(key, std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens));
    request.keys.push_back(key);
  }
  return request.keys;
}

void Core::State::set_wanted(BlockId id, const ChainKey& key, std::uint32_t wanted) {
  if (index_.block(id).kind == BlockKind::kFull && index_.block(id).key == key) index_.set_wanted(id, wanted);
}

void Core::State::list_wants(std::uint64_t arrival, CoreWaiting& waiting) {
  const std::vector<ChainKey>& keys = keys_of(*requests_.at(waiting.id));
  while (waiting.wants.size() < keys.size()) {
    const ChainKey& key = keys[waiting.wants.size()];
    const BlockId block = index_.find(key);
    if (block == kNoBlock) break;
    std::set<std::uint64_t>& wanters = wanters_[key];
    wanters.insert(arrival);
    set_wanted(block, key, place_of(*wanters.begin()));
    waiting.wants.emplace_back(block, key);
    ++wants_;
    prefetched_ = false;
  }
}

void Core::State::unlist_wants(std::uint64_t arrival, CoreWaiting& waiting) {
  for (const auto& [id, key] : waiting.wants) {
    const auto wanters = wanters_.find(key);
    wanters->second.erase(arrival);
    const bool last = wanters->second.empty();
    set_wanted(id, key, last ? kNotWanted : place_of(*wanters->second.begin()));
    if (last) wanters_.erase(wanters);
  }
  wants_ -= waiting.wants.size();
  waiting.wants.clear();
  waiting.prefetched = 0;
}

void Core::State::note_queue_changes() {
  for (const auto& [arrival, id] : queue_changes_) {
    const auto request = requests_.find(id);
    const bool waits = request != requests_.end() && !request->second->running;
    const auto known = waiting_.find(arrival);
    if (waits && known == waiting_.end()) {
      const std::uint32_t tokens = request->second->length();
      waiting_.emplace(arrival, CoreWaiting{.id = id, .tokens = tokens, .wants = {}});
      waiting_tokens_ += tokens;
    } else if (!waits && known != waiting_.end()) {
      waiting_tokens_ -= known->second.tokens;
      unlist_wants(arrival, known->second);
      window_count_ -= known->second.in_window;
      waiting_.erase(known);
    }
  }
  queue_changes_.clear();
}

// The windows hold the first requests whose state the slower tiers can hold.
void Core::State::move_window() {
  std::uint64_t block = 0, host = 0, disk = 0;
  for (const CoreGroup& group : config_.groups) {
    block += group.block_bytes;
    host += group.block_bytes * group.host_blocks;
    disk += group.block_bytes * group.disk_blocks;
  }
  const std::uint64_t session =
      waiting_.empty() ? 0 : waiting_tokens_ / waiting_.size() * block / kBlockTokens;
  prefetch_window_ = prefetch_window(host, session);
  const std::uint32_t window = std::min(config_.lookahead_requests, eviction_window(host, disk, session));
  const std::uint64_t blocks = kWindowBlocksPerRequest * config_.lookahead_requests;

  // Who came back is before the window's end and not in it yet; who came last is behind it.
  std::size_t looked = 0;
  for (auto next = waiting_.begin(); next != waiting_.end() && looked < kLookAgain; ++next, ++looked) {
    if (next->first >= window_end_) break;
    if (!next->second.in_window) ++window_count_;
    next->second.in_window = true;
    list_wants(next->first, next->second);
  }
  for (auto next = waiting_.lower_bound(window_end_);
       next != waiting_.end() && window_count_ < window && wants_ < blocks; ++next) {
    next->second.in_window = true;
    ++window_count_;
    list_wants(next->first, next->second);
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

// The blocks that the queue needs, in the order of need.
void Core::State::look_ahead(Plan& plan) {
  if (!has_host_ && !has_disk_) {
    queue_changes_.clear();
    return;
  }
  if (!queue_changes_.empty()) {
    note_queue_changes();
    move_window();
  }
  preload(plan);
  prefetch(plan);
}

void Core::State::check_window() const {
  std::uint64_t in_window = 0, wants = 0, tokens = 0;
  for (const auto& [arrival, waiting] : waiting_) {
    tokens += waiting.tokens;
    in_window += waiting.in_window;
    wants += waiting.wants.size();
    LOCI_CHECK(waiting.in_window || waiting.wants.empty(), "who is outside the window wants nothing");
    LOCI_CHECK(!waiting.in_window || arrival < window_end_, "the window ends behind its last");
    for (const auto& [id, key] : waiting.wants) {
      LOCI_CHECK(wanters_.at(key).contains(arrival), "a block knows who wants it");
    }
    const auto request = requests_.find(waiting.id);
    LOCI_CHECK(request != requests_.end() && !request->second->running,
               "who waits is there and does not run");
  }
  LOCI_CHECK(in_window == window_count_ && wants == wants_ && tokens == waiting_tokens_, "sums are sums");
}

// While a pass runs, the loads of who comes next begin (the read buffer of AttentionStore §3.2.1: device
// memory that nobody needs now). In groups with a window the place to go on from is chosen at admission.
void Core::State::preload(Plan& plan) {
  if (in_flight_.empty() || windows_ || drain_deadline_ || queue_.empty()) return;
  for (const FairQueue::Head& head : queue_.heads()) {
    CoreRequest& request = *requests_.at(head.request);
    if (request.preloaded || request.is_public || request.lineage != nullptr) continue;
    request.preloaded = true;
    preload(request, plan);
  }
}

void Core::State::preload(CoreRequest& request, Plan& plan) {
  const Tier slowest = slowest_readable();
  CoreProbes probes = choose(request, true, slowest);
  if (worthwhile(probes, slowest) != slowest) return;
  // What is there of the request is held meanwhile, so that nothing of it makes room.
  std::vector<BlockPin> there;
  std::vector<BlockId> lacking;
  for (const CoreProbe& found : probes.blocks) {
    if (found.node == kNoBlock) continue;
    if (found.load && !loads_.contains(found.node)) {
      lacking.push_back(found.node);
      continue;
    }
    BlockPin& pin = there.emplace_back(index_.pin(found.node));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (index_.block(found.node).parts[group]) index_.hold(pin, group);
    }
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.available(group) < lacking.size() + reserve_blocks_[group]) return;
  }
  std::array<std::uint64_t, kTiers> bytes{};
  for (const BlockId id : lacking) {
    BlockPin pin = index_.pin(id);
    request.preloads.emplace(index_.block(id).key, load_tier(id));
    place_admitted(pin, true);
    start_load(pin, bytes, plan);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (pin.holds(group)) index_.let_go(pin, group, Release::kUnused);  // its load holds it
    }
  }
  book_loads(lacking, bytes);
}

void Core::State::prefetch(Plan& plan) {
  if (!has_host_ || prefetched_ || slowest_readable() != Tier::kDisk) return;
  std::uint32_t looked = 0;
  for (auto& [arrival, waiting] : waiting_) {
    if (looked++ >= prefetch_window_ || arrival >= window_end_) break;
    for (; waiting.prefetched < waiting.wants.size(); ++waiting.prefetched) {
      if (saves_in_flight_ >= saves_max_) return;
      const auto& [id, key] = waiting.wants[waiting.prefetched];
      if (index_.block(id).kind != BlockKind::kFull || index_.block(id).key != key) continue;
      if (!start_prefetch(id, plan)) {  // what comes later has no more right to room
        prefetched_ = true;
        return;
      }
    }
  }
  prefetched_ = true;
}

// False: host memory has no room for it until the queue changes.
bool Core::State::start_prefetch(BlockId id, Plan& plan) {
  CoreMove move{.from = Tier::kDisk, .to = Tier::kHost, .pin = index_.pin(id), .parts = {}};
  bool room = true;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const Block& block = index_.block(id);
    const LowerCopy* disk = block.copy(Tier::kDisk, group);
    if (disk == nullptr || !disk->whole || block.parts[group] || block.copy(Tier::kHost, group) != nullptr)
      continue;
    const SlotId from = disk->slot.slot();
    index_.begin_read(id, Tier::kDisk, group);
    const std::optional<SlotId> slot = index_.reserve_copy(id, Tier::kHost, group);
    if (!slot) {
      index_.end_read(id, Tier::kDisk, group);
      room = false;
      continue;
    }
    move.parts.push_back({group, from, *slot});
  }
  if (move.parts.empty()) return room;
  ++saves_in_flight_;
  start_move(std::move(move), plan);
  return true;
}

}  // namespace loci
