// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"
#include "loci/engine/core/queue_needs.h"
#include "loci/policy/eviction.h"

namespace loci {

namespace {

// What a step gives back of the device's memory takes its executor about a millisecond.
constexpr Nanos kGiveBackPause = 2 * kNanosPerMilli;
// The core deletes and looks ahead in portions. So long it waits between two, so that it can take other
// events.
constexpr Nanos kPortionPause = kNanosPerMilli / 2;

}  // namespace

Core::Core(std::unique_ptr<State> state) : state_(std::move(state)) {}
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;
Core::~Core() = default;

namespace {

Status check_groups(const std::vector<CoreGroup>& groups) {
  if (groups.empty() || groups.size() > kLayerGroupsMax) {
    return invalid_argument(fmt::format("expected 1 to {}, found {}", kLayerGroupsMax, groups.size()),
                            "groups");
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].block_count == 0) return invalid_argument("expected at least 1, found 0", "block_count");
    if (groups[i].block_count > (1u << 30)) {
      return invalid_argument(fmt::format("expected at most 2^30, found {}", groups[i].block_count),
                              "block_count");
    }
    const auto width = [](std::uint32_t window) { return window == 0 ? UINT32_MAX : window; };
    if (i > 0 && width(groups[i].window) >= width(groups[i - 1].window)) {
      return invalid_argument(
          fmt::format("expected the widest first, found {} after {}", groups[i].window, groups[i - 1].window),
          "window");
    }
  }
  return {};
}

// How often the disk's record of state that is used all the time is dated again: so often in the time that it
// would be kept unused, and once an hour at least, since models that share a disk are compared by it.
constexpr Nanos kDatesOfALife = 8;
constexpr Nanos kDateGranularityMax = 3600 * kNanosPerSecond;

// A policy of its own for each tier and group; what is to be saved is in the same order.
Result<IndexPools> index_pools(const CoreConfig& config, const CostCurves& curves) {
  const auto costs = std::make_shared<const CostModel>(curves);
  const bool host = config.groups.front().host_blocks > 0, disk = config.groups.front().disk_blocks > 0;
  const bool shared = config.groups.front().shared_blocks > 0;
  const bool windows = std::any_of(config.groups.begin(), config.groups.end(), [&](const CoreGroup& group) {
    return group.window != 0 && group.window < config.context_tokens;
  });
  IndexPools pools;
  pools.hole_records = disk ? config.hole_records : 0;
  if (disk) pools.date_granularity = std::min(config.state_ttl / kDatesOfALife, kDateGranularityMax);
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    const CoreGroup& group = config.groups[i];
    const auto order = [&](Tier tier) {
      const EvictionPlace place{.tier = tier,
                                .block_bytes = group.block_bytes,
                                .hidden_bytes = config.hidden.block_bytes,
                                .seed = config.seed + i,
                                .holes = !windows,
                                .chunk_blocks = config.swap_chunk_tokens / kBlockTokens};
      return make_eviction_order(tier == Tier::kShared ? "lru" : config.eviction, place, costs);
    };
    const auto add = [&](std::vector<IndexPool>& to, Tier tier, std::uint32_t slots, bool saved) -> Status {
      IndexPool& pool = to.emplace_back();
      pool.slots = slots;
      LOCI_ASSIGN_OR_RETURN(pool.eviction, order(tier));
      // What is behind a window is not worth saving, and the rest of it is saved when its request ends.
      if (saved && group.window == 0) {
        LOCI_ASSIGN_OR_RETURN(pool.unsaved, order(tier));
      }
      return {};
    };
    LOCI_RETURN_IF_ERROR(add(pools.device, Tier::kDevice, group.block_count, host || disk));
    if (host) LOCI_RETURN_IF_ERROR(add(pools.host, Tier::kHost, group.host_blocks, disk));
    if (disk) LOCI_RETURN_IF_ERROR(add(pools.disk, Tier::kDisk, group.disk_blocks, false));
    if (shared) LOCI_RETURN_IF_ERROR(add(pools.shared, Tier::kShared, group.shared_blocks, false));
  }
  // One group's, in the order of its keys and values.
  if (config.hidden.disk_blocks > 0)
    pools.disk.push_back({.slots = config.hidden.disk_blocks, .eviction = nullptr, .unsaved = nullptr});
  return pools;
}

Status check_tiers(const CoreConfig& config) {
  const CoreGroup& first = config.groups.front();
  for (const CoreGroup& group : config.groups) {
    if ((group.host_blocks > 0) != (first.host_blocks > 0)) {
      return invalid_argument("expected slots for every group or for none", "host_blocks");
    }
    if ((group.disk_blocks > 0) != (first.disk_blocks > 0)) {
      return invalid_argument("expected slots for every group or for none", "disk_blocks");
    }
    if ((group.shared_blocks > 0) != (first.shared_blocks > 0)) {
      return invalid_argument("expected slots for every group or for none", "shared_blocks");
    }
  }
  if (const CoreHidden& hidden = config.hidden; hidden.disk_blocks > 0) {
    const bool possible = config.groups.size() == 1 && first.window == 0 && first.host_blocks == 0 &&
                          first.disk_blocks > 0 && hidden.block_bytes < first.block_bytes &&
                          hidden.share.percent <= 100;
    if (!possible) {
      return invalid_argument(
          "expected one group without a window, a disk, no host tier, less bytes than of keys and values, "
          "and "
          "at most 100 %",
          "hidden");
    }
  }
  if (config.state_ttl <= 0) return invalid_argument("expected more than 0", "state_ttl");
  if (config.pass_time <= 0) return invalid_argument("expected more than 0", "pass_time");
  if (config.costs.attention.empty()) return invalid_argument("expected at least one cost", "costs");
  return {};
}

}  // namespace

Result<Core> Core::make(const CoreConfig& config) {
  const auto at_least_one = [](std::uint32_t value, const char* field) {
    return value > 0 ? Status() : invalid_argument("expected at least 1, found 0", field);
  };
  LOCI_RETURN_IF_ERROR(check_groups(config.groups));
  LOCI_RETURN_IF_ERROR(check_policies(config));
  LOCI_RETURN_IF_ERROR(at_least_one(config.layers, "layers"));
  LOCI_RETURN_IF_ERROR(at_least_one(config.max_batch_tokens, "max_batch_tokens"));
  LOCI_RETURN_IF_ERROR(at_least_one(config.max_running, "max_running"));
  LOCI_RETURN_IF_ERROR(at_least_one(config.max_queued, "max_queued"));
  if (config.context_tokens < 2) {
    return invalid_argument(fmt::format("expected at least 2, found {}", config.context_tokens),
                            "context_tokens");
  }
  if (config.passes_ahead > 1) {
    return invalid_argument(fmt::format("expected at most 1, found {}", config.passes_ahead), "passes_ahead");
  }
  if (config.passes_ahead > 0 && config.batch == "split")
    return invalid_argument("expected unified where passes are planned ahead, found 'split'", "batch");
  LOCI_RETURN_IF_ERROR(check_tiers(config));
  LOCI_ASSIGN_OR_RETURN(IndexPools pools, index_pools(limited_windows(config), config.costs));
  return Core(std::make_unique<State>(config, std::move(pools)));
}

Plan Core::step(Nanos now, Event event) { return state_->step(now, std::move(event)); }
CoreStats Core::stats() const { return state_->stats(); }
std::vector<PublicPrefix> Core::public_prefixes() const { return state_->public_prefixes(); }
std::shared_ptr<const PublicChains> Core::public_chains() const { return state_->public_chains(); }
void Core::watch_places() { state_->watch_places(); }
std::vector<BlockPlace> Core::take_moved() { return state_->take_moved(); }
void Core::check_invariants() const { state_->check_invariants(); }

Core::State::State(const CoreConfig& config, IndexPools pools)
    : config_(limited_windows(config)),
      group_count_(static_cast<std::uint32_t>(config.groups.size())),
      costs_(config.costs),
      pass_times_(costs_, config.pass_time),
      split_(config.batch == "split"),
      index_(std::move(pools)),
      // Each running request gets a token of each pass, so none starves.
      batch_(std::min(config.max_running, config.max_batch_tokens)),
      queue_(
          batch_.most(), make_admission_order(config.admission).value(),
          [this](RequestId id) { return distances_.of(*requests_.at(id)); }, config.admission_looks),
      before_queue_(config_.max_queued),
      transfers_(config_, costs_, index_),
      places_(config_, index_, transfers_),
      share_follower_(config_, costs_, transfers_, pass_times_),
      prefixes_(config_, index_, transfers_),
      windows_(config_, index_, transfers_, prefixes_, places_),
      arrivals_(config_, prefixes_, windows_, deadlines_, queue_, before_queue_),
      flights_(config_, index_, transfers_, windows_),
      distances_(config_, index_, prefixes_, places_),
      recovery_(config_, prefixes_.hasher(), index_),
      forgotten_(prefixes_, index_, config_.groups.front().disk_blocks > 0,
                 config_.groups.front().shared_blocks > 0 && config_.writes_shared),
      device_memory_(config_, index_),
      restores_(config_, costs_, index_, transfers_, prefixes_, places_, windows_, pass_times_),
      queue_needs_(config_, index_, transfers_, prefixes_, places_, restores_, queue_),
      admission_(config_, index_, transfers_, prefixes_, windows_, device_memory_, restores_, batch_),
      former_(config_, index_, transfers_, windows_, flights_, batch_, queue_, pass_times_),
      suspension_cost_(config_, index_, transfers_, places_, pass_times_),
      giving_way_(config_, index_, windows_, queue_, batch_, admission_, device_memory_, suspension_cost_),
      tables_(config_, index_, transfers_, prefixes_, windows_, flights_, batch_),
      preloads_(config_, transfers_, device_memory_, restores_, admission_, batch_, queue_, before_queue_,
                queue_needs_, former_),
      beginnings_(config_, index_, transfers_, prefixes_, places_, device_memory_, restores_, admission_),
      peer_reads_(index_, transfers_),
      state_age_(config.state_ttl),
      shared_questions_(config_, index_, transfers_, prefixes_, places_, pass_times_) {
  const std::size_t requests = std::min(kReservedRequests, std::size_t{config_.max_queued} + batch_.most());
  requests_.reserve(requests);
  queue_.reserve(requests);
}

Plan Core::State::step(Nanos now, Event&& event) {
  now_ = std::max(now_, now);
  index_.advance(now_);
  transfers_.advance(now_);
  former_.advance(now_);
  Plan plan;
  std::visit([&](auto& e) { on(std::move(e), plan); }, event);
  settle_disk();
  forgotten_.retry();
  expire(plan);
  for (CoreRequest* late : before_queue_.take_late(now_)) enqueue(*late);  // whatever has come by now
  take_distances();
  if (flights_.may_begin()) schedule(plan);
  look_ahead(plan.pass.has_value());
  save();
  state_age_.sweep(index_, now_);
  plan.give_back = device_memory_.give_back();
  take_distances();
  plan.moves = transfers_.take_begun();
  for (const RecordChange& change : index_.take_record_changes()) plan.record_changes.push_back(change);
  plan.shared_forgets = forgotten_.take_shared();
  plan.spent = forgotten_.take_spent();
  plan.peer_gone = peer_reads_.take_gone();
  plan.wake_at = std::min(
      {next_deadline(), state_age_.next_sweep(), transfers_.shares_at(), peer_reads_.next_deadline(now_)});
  if (forgotten_.has_more() || queue_needs_.has_more() || preloads_.has_more() || recovery_.has_more() ||
      disk_is_beyond_)
    plan.wake_at = std::min(plan.wake_at, now_ + kPortionPause);
  if (transfers_.disk_gives_up()) plan.wake_at = std::min(plan.wake_at, transfers_.disk_gives_up_until());
  if (device_memory_.has_more()) plan.wake_at = std::min(plan.wake_at, now_ + kGiveBackPause);
  const bool waits_for_entries = drain_waits_for_entries();
  if (waits_for_entries) plan.wake_at = std::min(plan.wake_at, deadlines_.drain_deadline());
  drained_ = drained_ || (deadlines_.drains() && requests_.empty() && flights_.empty() && transfers_.idle() &&
                          !forgotten_.has_more() && !waits_for_entries);
  plan.drained = drained_;
  return plan;
}

// Deletions wait for what the disk has, or it would have it again at the next start, and so do saves. It is
// known before the drain's deadline where the disk is sound.
bool Core::State::drain_waits_for_entries() const {
  if (!deadlines_.drains() || deadlines_.drain_is_over(now_)) return false;
  if (forgotten_.waits_for_entries()) return true;
  bool has_state = false;
  for (std::uint32_t group = 0; group < group_count_; ++group)
    has_state = has_state || index_.used_slots(group) > 0;
  return has_state && transfers_.waits_for_disk();
}

// Where the queue is full somebody may give up a place.
bool Core::State::find_place(const Arrival& event, Plan& plan) {
  if (!arrivals_.full()) return true;
  const std::optional<RequestId> gives = arrivals_.gives_place(event);
  if (!gives) return false;
  reject_waiting(*requests_.at(*gives),
                 resource_exhausted("the queue is full, and others have fewer places in it; try again later"),
                 plan);
  return true;
}

void Core::State::reject_waiting(CoreRequest& request, Status status, Plan& plan) {
  deadlines_.drop(request);
  leave_queue(request);
  reject(request.id, std::move(status), plan);
  requests_.erase(request.id);
}

void Core::State::reject(RequestId request, Status status, Plan& plan) {
  Rejected rejected{request, std::move(status), 0};
  if (rejected.status.code() == StatusCode::kResourceExhausted) {
    rejected.retry_after = queue_rate_.refuse();
  }
  if (rejected.may_come_again()) ++totals_.rejections_total;
  plan.outputs.emplace_back(std::move(rejected));
}

void Core::State::on(Arrival&& event, Plan& plan) {
  const RequestId id = event.request;
  LOCI_CHECK(!requests_.contains(id), "a request's id is new");
  if (Status status = refusal(event); !status.ok()) {
    reject(id, std::move(status), plan);
    return;
  }
  if (!find_place(event, plan)) {
    reject(id,
           resource_exhausted(fmt::format("{} requests are waiting, which is the limit; try again later",
                                          arrivals_.waiting())),
           plan);
    return;
  }
  std::unique_ptr<CoreRequest> request = arrivals_.make(std::move(event), now_);
  deadlines_.add(*request);
  if (!ask(*request, plan)) take_in(*request);
  requests_.emplace(id, std::move(request));
}

std::string sharing_of(const TenantId& tenant, const std::string& salt) {
  return salt.empty() ? tenant : tenant + "\n" + salt;
}

std::string sharing_of(const Arrival& arrival) { return sharing_of(arrival.tenant, arrival.salt); }

void Core::State::on(const Cancel& event, Plan& plan) {
  if (const auto found = requests_.find(event.request); found != requests_.end()) {
    end_when_free(*found->second, FinishReason::kCancelled, plan);
  }
}

void Core::State::on(const PassDone& event, Plan& plan) { commit(event, plan); }

void Core::State::on(const Tick&, Plan&) {}

void Core::State::on(const DiskRoom& event, Plan&) {
  if (!index_.has_tier(Tier::kDisk)) return;
  const std::uint32_t pools = index_.pool_count(Tier::kDisk);
  for (std::uint32_t pool = 0; pool < std::min<std::size_t>(pools, event.slots.size()); ++pool) {
    index_.limit(Tier::kDisk, pool, event.slots[pool]);
  }
  disk_is_beyond_ = true;
}

void Core::State::on(const MemoryRoom& event, Plan&) {
  device_memory_.limit(event);
  room_.changed();
}

void Core::State::on(const Recovered& event, Plan& plan) {
  plan.record_changes = recovery_.take_over(event, now_);
}

void Core::State::on(Forget&& event, Plan&) {
  forgotten_.forget(std::move(event));
  room_.changed();
}

void Core::State::on(const CostsMeasured& event, Plan& plan) {
  costs_ = CostModel(event.costs);
  pass_times_.costs_changed();
  transfers_.costs_changed();
  plan.hidden_share = share_follower_.choose(now_);
  IndexPools pools = index_pools(config_, event.costs).value();
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    std::vector<IndexPool>& of_tier = tier == Tier::kDevice ? pools.device
                                      : tier == Tier::kHost ? pools.host
                                                            : pools.disk;
    for (std::uint32_t group = 0; group < std::min<std::size_t>(of_tier.size(), group_count_); ++group) {
      index_.set_orders(tier, group, std::move(of_tier[group].eviction), std::move(of_tier[group].unsaved));
    }
  }
}

void Core::State::on(const Pause& event, Plan&) {
  const auto found = requests_.find(event.request);
  if (found == requests_.end() || found->second->paused == event.paused) return;
  CoreRequest& request = *found->second;
  if (request.is_public || request.phase.is(RequestPhase::kEnding)) return;
  if (event.paused && paused_ >= config_.max_queued) return;
  if (request.before_queue->until)
    before_queue_.leave(request);
  else if (request.waits())
    leave_queue(request);
  request.paused = event.paused;
  event.paused ? ++paused_ : --paused_;
  if (request.waits()) take_in(request);
}

void Core::State::on(const PeerQuestion& event, Plan& plan) {
  plan.peer_answers.push_back({event.id, peer_reads_.answer(event.keys)});
}

void Core::State::on(const PeerRead& event, Plan&) { peer_reads_.add(event, now_); }

void Core::State::on(const PeerLeft& event, Plan&) { peer_reads_.leave(event.id); }

void Core::State::on(const Drain& event, Plan&) { deadlines_.drain(event.deadline); }

void Core::State::expire(Plan& plan) {
  while (const std::optional<RequestId> due = deadlines_.due(now_))
    end_when_free(*requests_.at(*due), FinishReason::kDeadline, plan);
  if (!deadlines_.drain_is_over(now_)) return;
  std::vector<RequestId> left;
  for (const auto& [id, request] : requests_) {
    if (!request->phase.is(RequestPhase::kEnding)) left.push_back(id);
  }
  std::ranges::sort(left);  // outputs are in the order of the ids, whatever that of the table is
  for (const RequestId id : left) end_when_free(*requests_.at(id), FinishReason::kDeadline, plan);
}

Nanos Core::State::next_deadline() const {
  return std::min(deadlines_.next(now_, !requests_.empty()), before_queue_.next());
}

CoreStats Core::State::stats() const {
  CoreStats stats = totals_;
  stats.running = static_cast<std::uint32_t>(batch_.size());
  stats.queued = static_cast<std::uint32_t>(arrivals_.waiting());
  stats.paused = static_cast<std::uint32_t>(paused_);
  stats.before_queue = static_cast<std::uint32_t>(before_queue_.size());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint32_t count = index_.slot_count(group);
    stats.pools[group] = {count, index_.free_count(group), count - index_.available(group)};
    stats.blocks_total += count;
    stats.blocks_free += stats.pools[group].blocks_free;
    stats.blocks_pinned += stats.pools[group].blocks_pinned;
  }
  stats.blocks_public = prefixes_.public_blocks();
  stats.evictions_total = index_.evictions();
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kShared}) {
    TierStats& of_tier = stats.tiers[static_cast<std::size_t>(tier)];
    for (std::uint32_t pool = 0; pool < index_.pool_count(tier); ++pool) {
      const TierUse use = index_.use(tier, pool);
      of_tier.slots += use.slots;
      of_tier.free += use.free;
      of_tier.evictable += use.evictable;
      of_tier.evictions_total += use.evictions;
    }
  }
  stats.tiers[0].evictions_total = index_.evictions();
  stats.spans_wasted_total = flights_.spans_wasted();
  transfers_.add_stats(stats);
  sources_.add_stats(stats);
  stats.recovers = transfers_.waits_for_disk();
  recovery_.add_stats(stats);
  forgotten_.add_stats(stats);
  device_memory_.add_stats(stats);
  stats.peers_waiting = peer_reads_.waiting();
  return stats;
}

}  // namespace loci
