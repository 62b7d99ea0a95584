// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/queue_needs.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <ranges>
#include <span>

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
// The places of so many follow their turns.
constexpr std::size_t kInOrder = 16;
// Blocks, where the index is large about a microsecond each.
constexpr std::size_t kMarksInALook = 12;
constexpr std::size_t kMarksBeforeAPass = 4;
constexpr std::size_t kPrefetchLooks = 64;
constexpr std::size_t kPrefetchesAhead = 8;  // whose memory is read meanwhile

// Places are turns in units of four tokens, from a place on that leaves room before it: who comes back is
// before all who wait. Between two of a tenant there is room for some more.
constexpr std::uint64_t kPlaceUnit = 4 * kVirtualToken;
constexpr std::uint64_t kFirstPlace = 1u << 28;
constexpr std::uint32_t kPlaceStep = 16;
constexpr std::uint32_t kLastPlace = kNotWanted - 1;

// Blocks that the window can want, as far as they have room from the start: memory that the system gives for
// the first time costs a step.
constexpr std::uint64_t kReservedWants = std::uint64_t{1} << 20;

std::uint64_t wanted_blocks_most(const CoreConfig& config) {
  std::uint64_t there = 0;
  for (const CoreGroup& group : config.groups)
    there = std::max(there, std::uint64_t{group.block_count} + group.host_blocks +
                                std::max(group.disk_blocks, config.hidden.disk_blocks) + group.shared_blocks);
  const std::uint64_t of_request = config.context_tokens / kBlockTokens + 1;
  return std::min({there, config.lookahead_requests * of_request, kReservedWants});
}

std::uint32_t before(std::uint32_t place) { return place - std::min(place, kPlaceStep); }
std::uint32_t behind(std::uint32_t place) { return place + std::min(kLastPlace - place, kPlaceStep); }

}  // namespace

QueueNeeds::QueueNeeds(const CoreConfig& config, BlockIndex& index, Transfers& transfers,
                       const Prefixes& prefixes, const Places& places, const Restores& restores,
                       FairQueue& queue)
    : config_(config),
      index_(index),
      transfers_(transfers),
      prefixes_(prefixes),
      starts_(places),
      restores_(restores),
      queue_(queue) {
  wanters_.reserve(wanted_blocks_most(config));
  const std::size_t requests = std::min(std::size_t{config.max_queued}, kReservedRequests);
  waiting_.reserve(requests);
  forecast_.reserve(requests);
}

void QueueNeeds::served(const std::string& tenant, std::uint64_t time) {
  if (queue_.order_changes_with_time()) moved_.insert(tenant);
  forecast_.charge(tenant, time);
}

// --- marks ---

// The block's id may be another one's by now.
bool QueueNeeds::still_there(const Want& wanted) const {
  const Block& block = index_.block(wanted.first);
  return block.kind == BlockKind::kFull && block.key == wanted.second;
}

void QueueNeeds::set_wanted(const Want& wanted, const Wanters& wanters) {
  if (!still_there(wanted)) return;
  const bool by_all = wanters.seeing > 0 || !starts_.any_windows();
  index_.set_wanted(wanted.first, wanters.first.first, by_all ? kEveryGroup : starts_.seeing_all());
}

// Of blocks that are marked next: without it each mark waits for memory.
void QueueNeeds::read_ahead(std::span<const ChainKey> keys) const {
  keys = keys.first(std::min(keys.size(), marks_left_));
  for (const ChainKey& key : keys) {
    index_.prefetch(key);
    wanters_.prefetch(key);
  }
  for (const ChainKey& key : keys) index_.prefetch(index_.find(key));
}

// What was not there comes with a new name. (Whether an original serves depends on where it is.)
bool QueueNeeds::may_list(const Waiting& waiting) const {
  const bool lists_all = waiting.lists_all || waiting.names_seen == index_.names_made();
  return !lists_all || waiting.has_lineage || waiting.window_to != waiting.goes_on;
}

void QueueNeeds::list_wants(Waitings::iterator entry) {
  auto& [arrival, waiting] = *entry;
  if (!may_list(waiting)) return;
  CoreRequest& request = *waiting.request;
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  const std::size_t listed = waiting.wants.size();
  bool ran_out = false;
  read_ahead(std::span(keys).subspan(std::min(listed, keys.size())));
  while (waiting.wants.size() < keys.size()) {
    const auto number = static_cast<std::uint32_t>(waiting.wants.size());
    BlockId block = index_.find(keys[number]);
    const auto comes = [&] { return index_.reachable(block) || transfers_.loading(block); };
    if (request.lineage != nullptr && (block == kNoBlock || !comes())) {
      if (const BlockId original = prefixes_.original_of(request, number); original != kNoBlock)
        block = original;
    }
    if (block == kNoBlock) {
      waiting.names_seen = index_.names_made();
      break;
    }
    if (marks_left_ == 0) {
      unlisted_.insert({waiting.place, arrival});
      ran_out = true;
      break;
    }
    --marks_left_;
    mark(waiting.wants.emplace_back(block, index_.block(block).key), {waiting.place, arrival}, false);
    if (starts_.any_windows()) find_place(waiting, block);
  }
  waiting.lists_all = waiting.wants.size() == keys.size();
  waiting.is_listed = waiting.is_listed || !ran_out;
  if (waiting.is_listed) mark_windows(entry);
  if (waiting.wants.size() == listed) return;
  wants_ += waiting.wants.size() - listed;
  unprefetched_.emplace(waiting.place, arrival);
  prefetched_ = false;
}

// Of the blocks before a place the first that the widest window sees there.
std::uint32_t QueueNeeds::first_seen(std::uint32_t place) const {
  std::uint32_t first = place;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    if (starts_.windowed(group)) first = std::min(first, starts_.first_seen(group, place * kBlockTokens));
  }
  return first;
}

// Whether the request could go on behind the block, which was listed last. What somebody computes now will be
// there.
void QueueNeeds::find_place(Waiting& waiting, BlockId id) const {
  const Block& block = index_.block(id);
  const bool is_computed =
      block.pins > 0 && block.filled_in(0) < kBlockTokens && block.whole_copy(0) == nullptr;
  const Tier slowest = restores_.slowest_wanted(*waiting.request);
  waiting.walk.step(is_computed ? kEveryGroup : starts_.groups_there(id, slowest));
  if (starts_.is_place(waiting.walk)) waiting.goes_on = waiting.walk.blocks();
}

// A few at a time. What the windows of an earlier place saw alone is marked so no more.
void QueueNeeds::mark_windows(Waitings::iterator entry) {
  auto& [arrival, waiting] = *entry;
  if (waiting.window_of != waiting.goes_on) {
    if (waiting.window_of == 0) waiting.window_from = first_seen(waiting.goes_on);
    waiting.window_of = waiting.goes_on;
    waiting.window_to = waiting.window_from;
  }
  const std::uint32_t first = first_seen(waiting.window_of);
  for (; waiting.window_to < waiting.window_of && marks_left_ > 0; ++waiting.window_to, --marks_left_)
    mark(waiting.wants[waiting.window_to], {waiting.place, arrival}, waiting.window_to >= first);
  if (waiting.window_to < waiting.window_of)
    unlisted_.insert({waiting.place, arrival});
  else
    waiting.window_from = first;
}

void QueueNeeds::rotated(std::uint64_t arrival, std::uint32_t number, BlockId block) {
  const auto entry = waiting_.find(arrival);
  if (entry == waiting_.end() || number >= entry->second.wants.size()) return;  // or it will be listed
  Waiting& waiting = entry->second;
  const Want wanted(block, index_.block(block).key);
  if (waiting.wants[number].second == wanted.second) return;
  const auto [known, is_new] = waiting.rotated.try_emplace(number, wanted);
  if (!is_new) {  // it did not come, and is made again
    if (known->second.second != wanted.second) unmark(known->second, {waiting.place, arrival});
    known->second = wanted;
  }
  mark(wanted, {waiting.place, arrival}, false);
}

// `sees`: its windows see the block. (It may have been marked otherwise before.)
void QueueNeeds::mark(const Want& wanted, const QueuePlace& place, bool sees) {
  const auto [wanters, is_new] = wanters_.insert(wanted.second);
  if (!is_new && place < wanters.first) {
    wanters.others.emplace(wanters.first, wanters.first_sees);
    wanters.first_sees = false;
  }
  if (is_new || place < wanters.first) wanters.first = place;
  bool& known = place == wanters.first ? wanters.first_sees : wanters.others[place];
  if (std::exchange(known, sees)) --wanters.seeing;
  if (sees) ++wanters.seeing;
  set_wanted(wanted, wanters);
}

void QueueNeeds::unmark(const Want& wanted, const QueuePlace& place) {
  Wanters& wanters = *wanters_.find(wanted.second);
  const auto other = wanters.others.find(place);
  const bool is_first = place == wanters.first;
  if (is_first ? wanters.first_sees : other != wanters.others.end() && other->second) --wanters.seeing;
  if (is_first && wanters.others.empty()) {
    wanters.first.first = kNotWanted;
    set_wanted(wanted, wanters);
    wanters_.erase(wanted.second);
    return;
  }
  if (is_first) {
    const auto next = wanters.others.extract(wanters.others.begin());
    wanters.first = next.key();
    wanters.first_sees = next.mapped();
  } else if (other != wanters.others.end()) {
    wanters.others.erase(other);
  }
  set_wanted(wanted, wanters);
}

void QueueNeeds::leave(Waitings::iterator entry) {
  auto& [arrival, waiting] = *entry;
  wants_ -= waiting.wants.size();
  for (const auto& [number, rotated] : waiting.rotated) waiting.wants.push_back(rotated);
  unprefetched_.erase({waiting.place, arrival});
  again_.erase({waiting.place, arrival});
  places_.erase({waiting.place, arrival});
  unlisted_.erase({waiting.place, arrival});
  if (!waiting.wants.empty()) left_.emplace(QueuePlace{waiting.place, arrival}, std::move(waiting.wants));
  waiting = {.request = waiting.request,
             .id = waiting.id,
             .known = waiting.known,
             .has_lineage = waiting.has_lineage,
             .wants = {},
             .rotated = {},
             .walk = {}};
}

void QueueNeeds::unmark_left(std::size_t most) {
  while (!left_.empty() && marks_left_ > 0 && most > 0) {
    const auto first = left_.begin();
    for (const Want& wanted :
         first->second | std::views::reverse | std::views::take(std::min(marks_left_, most))) {
      index_.prefetch(wanted.first);
      wanters_.prefetch(wanted.second);
    }
    for (; !first->second.empty() && marks_left_ > 0 && most > 0; --marks_left_, --most) {
      unmark(first->second.back(), first->first);
      first->second.pop_back();
    }
    if (first->second.empty()) left_.erase(first);
  }
}

// --- places ---

std::uint32_t QueueNeeds::place_of_turn(std::uint64_t turn) const {
  if (turn < first_turn_) {
    const std::uint64_t earlier = (first_turn_ - turn) / kPlaceUnit;
    return static_cast<std::uint32_t>(kFirstPlace - std::min(kFirstPlace, earlier));
  }
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(kFirstPlace + (turn - first_turn_) / kPlaceUnit, kLastPlace));
}

// Between its neighbours in the order of its tenant, as far as there is room.
std::uint32_t QueueNeeds::place_for(std::uint64_t arrival) {
  const AdmissionForecast::Neighbours at = forecast_.neighbours(arrival);
  const auto place = [this](const std::optional<std::uint64_t>& neighbour) {
    const Waiting* waiting = neighbour ? &waiting_.at(*neighbour) : nullptr;
    return waiting != nullptr && waiting->in_window ? std::optional(waiting->place) : std::nullopt;
  };
  const std::optional<std::uint32_t> low = place(at.before), high = place(at.after);
  if (places_.empty()) first_turn_ = at.turn.value_or(first_turn_);
  std::uint32_t out = low ? behind(*low) : 0;
  if (at.turn) out = std::max(out, place_of_turn(*at.turn));
  // (Of those who come back together the last may be placed first: nobody is before it, its turn is unknown.)
  if (!low && !at.turn) out = high.value_or(place_of_turn(first_turn_));
  if (high && out >= *high) out = low ? *low + (*high - std::min(*low, *high)) / 2 : before(*high);
  return out;
}

// One request whose own turn ends before that of somebody begins who has an earlier place.
void QueueNeeds::put_in_order() {
  const std::vector<AdmissionForecast::Turn> turns = forecast_.first(kInOrder);
  std::vector<std::uint32_t> places;
  places.reserve(turns.size());
  for (const AdmissionForecast::Turn& turn : turns) places.push_back(waiting_.at(turn.arrival).place);
  std::optional<std::uint32_t> behind_of;  // the last place of those that are right
  for (std::size_t i = 0; i < turns.size(); ++i) {
    std::optional<std::uint32_t> next;  // the first place of those who come when its turn has ended
    for (std::size_t later = i + 1; later < turns.size(); ++later) {
      if (turns[later].begins >= turns[i].ends) next = std::min(next.value_or(places[later]), places[later]);
    }
    if (next && places[i] > *next) {
      const bool room = behind_of && *behind_of < *next;
      const auto entry = waiting_.find(turns[i].arrival);
      leave(entry);
      enter(entry, room ? *behind_of + (*next - *behind_of) / 2 : before(*next));
      unfinished_ = true;
      return;
    }
    behind_of = std::max(behind_of.value_or(places[i]), places[i]);
  }
}

// --- who waits ---

// What serving it is expected to charge its tenant: the tokens that the index does not know.
std::uint64_t QueueNeeds::cost_of(const CoreRequest& request, std::uint32_t known) const {
  return (request.length() - std::uint64_t{known} * kBlockTokens) * kVirtualToken / request.weight;
}

void QueueNeeds::take_changes(const FindWaiting& find) {
  for (const auto& [arrival, id] : changes_) {
    CoreRequest* const request = find(id);
    const auto known = waiting_.find(arrival);
    if (request != nullptr) {
      if (!queue_.is_behind_front(request->tenant, arrival)) moved_.insert(request->tenant);
      if (known != waiting_.end()) continue;
      const std::uint32_t blocks = prefixes_.known_blocks(*request);
      waiting_.emplace(arrival, Waiting{.request = request,
                                        .id = id,
                                        .known = blocks,
                                        .has_lineage = request->lineage != nullptr,
                                        .wants = {},
                                        .rotated = {},
                                        .walk = {}});
      forecast_.push(request->tenant, queue_.virtual_time(request->tenant), arrival,
                     cost_of(*request, blocks));
    } else if (known != waiting_.end()) {
      moved_.insert(forecast_.tenant_of(arrival));
      if (known->second.in_window) leave(known);
      forecast_.erase(arrival);
      waiting_.erase(known);
    }
  }
  changes_.clear();
}

// True: somebody changed places with another one of its tenant.
bool QueueNeeds::take_turns() {
  bool changed = false;
  forecast_.settle();
  for (const std::string& tenant : moved_) {
    forecast_.set_time(tenant, queue_.virtual_time(tenant));
    if (forecast_.set_front(tenant, queue_.front(tenant))) changed = true;
  }
  moved_.clear();
  return changed;
}

// --- the window ---

void QueueNeeds::enter(Waitings::iterator entry, std::uint32_t place) {
  auto& [arrival, waiting] = *entry;
  // Who comes back leaves the marks that it has left to be given up in their turn.
  while (left_.contains({place, arrival})) place = place > 0 ? place - 1 : kLastPlace;
  waiting.place = place;
  waiting.in_window = true;
  places_.insert({place, arrival});
  list_wants(entry);
}

// Who has come into the window or left it.
void QueueNeeds::apply_window() {
  for (const std::uint64_t arrival : forecast_.take_changed()) {
    const auto entry = waiting_.find(arrival);
    if (forecast_.in_window(arrival) == entry->second.in_window) continue;
    entry->second.in_window ? leave(entry) : enter(entry, place_for(arrival));
  }
}

void QueueNeeds::look_again() {
  std::vector<Waitings::iterator> first;
  first.reserve(kLookAgain);
  for (const AdmissionForecast::Turn& turn : forecast_.first(kLookAgain)) {
    first.push_back(waiting_.find(turn.arrival));
    read_next_ahead(first.back()->second);
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    auto& [arrival, waiting] = *first[i];
    list_wants(first[i]);
    if (i >= kPrefetchAgain || waiting.wants.empty()) continue;
    if (again_.emplace(waiting.place, arrival).second) waiting.prefetched_again = 0;
  }
}

// Of the block that list_wants() looks up first.
void QueueNeeds::read_next_ahead(const Waiting& waiting) const {
  if (!may_list(waiting)) return;
  const std::vector<ChainKey>& keys = waiting.request->names->keys;
  if (waiting.wants.size() < keys.size()) index_.prefetch(keys[waiting.wants.size()]);
}

// Of those who have been in the window for a while.
void QueueNeeds::list_rest() {
  while (!unlisted_.empty() && marks_left_ > 0)
    list_wants(waiting_.find(unlisted_.extract(unlisted_.begin()).value().second));
}

// In whichever form, a slot holds the group's state of a block.
std::uint64_t QueueNeeds::slots(Tier tier, std::uint32_t group) const {
  std::uint64_t slots = 0;
  for (std::uint32_t pool = group; pool < index_.pool_count(tier); pool += index_.group_count())
    slots += index_.use(tier, pool).slots;
  return slots;
}

void QueueNeeds::fill_window() {
  std::uint64_t block = 0, host = 0, disk = 0, blocks = 0, for_prefetches = 0;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const std::uint64_t bytes = config_.groups[group].block_bytes;
    const std::uint64_t on_host = slots(Tier::kHost, group), on_disk = slots(Tier::kDisk, group);
    block += bytes;
    host += bytes * on_host;
    disk += bytes * on_disk;
    for_prefetches += bytes * (on_host * config_.prefetch_percent / 100);
    blocks = std::max(blocks, on_host + on_disk);
  }
  // (Of the first who come nothing is known of sessions.)
  const std::uint64_t session = std::max(1u, index_.mean_session_blocks()) * block;
  places_.set_first(prefetch_window(for_prefetches, session));
  const std::uint32_t window = std::min(config_.lookahead_requests, eviction_window(host, disk, session));

  list_rest();
  while (marks_left_ > 0 && forecast_.window_size() < window && wants_ < blocks && forecast_.grow())
    apply_window();
  while (forecast_.window_size() > window) {
    forecast_.shrink();
    apply_window();
  }
  prefetched_ = false;
}

void QueueNeeds::look(const FindWaiting& find, bool pass_waits) {
  moved_.merge(queue_.take_moved());
  if ((!index_.has_tier(Tier::kHost) && !index_.has_tier(Tier::kDisk)) || config_.lookahead_requests == 0) {
    changes_.clear();
    moved_.clear();
  }
  if (changes_.empty() && moved_.empty() && !forecast_.any_charged() && !unfinished_) return;
  const bool goes_on = unfinished_;
  bool changed = !changes_.empty();
  const std::size_t marks = pass_waits ? kMarksBeforeAPass : kMarksInALook;
  marks_left_ = marks;
  take_changes(find);
  unmark_left(marks / 2);
  changed = take_turns() || changed;
  apply_window();
  if (changed) look_again();
  if (changed || goes_on) fill_window();
  const bool exchanged = forecast_.exchange();
  if (exchanged) apply_window();
  unmark_left(marks);
  unfinished_ = exchanged || marks_left_ == 0 || !left_.empty();
  put_in_order();
}

// In groups with a window a request needs what is seen from where it goes on: until that is found, behind all
// that was known of it.
GroupSet QueueNeeds::wanted_groups(const Waiting& waiting, std::size_t number) const {
  if (!starts_.any_windows()) return kEveryGroup;
  const std::uint64_t known = std::max<std::uint64_t>(waiting.known, waiting.wants.size());
  const std::uint64_t place = waiting.is_listed ? waiting.goes_on : known;
  if (number >= place) return 0;
  return starts_.groups_seen(static_cast<std::uint32_t>(place * kBlockTokens),
                             static_cast<std::uint32_t>(number));
}

void QueueNeeds::prefetch() {
  looks_ran_out_ = false;
  if (!index_.has_tier(Tier::kHost) || prefetched_ || transfers_.slowest_own() != Tier::kDisk) return;
  if (transfers_.disk_gives_up()) return;
  std::size_t looks = kPrefetchLooks;
  if (prefetch_all(unprefetched_, &Waiting::prefetched, looks) &&
      prefetch_all(again_, &Waiting::prefetched_again, looks))
    prefetched_ = true;
}

// What the requests in these places want, as far as `done` says that it was not looked at. False: the rest is
// for later.
bool QueueNeeds::prefetch_all(std::set<QueuePlace>& places, std::size_t Waiting::* done, std::size_t& looks) {
  while (!places.empty() && places_.in_first(*places.begin())) {
    Waiting& waiting = waiting_.at(places.begin()->second);
    // What it will not load from the disk need not be brought to host memory for it either.
    if (restores_.slowest_wanted(*waiting.request) < Tier::kDisk) waiting.*done = waiting.wants.size();
    for (; waiting.*done < waiting.wants.size(); ++(waiting.*done)) {
      if (!transfers_.may_begin()) return false;
      if (looks == 0) {
        looks_ran_out_ = true;
        return false;
      }
      --looks;
      if (waiting.*done + kPrefetchesAhead < waiting.wants.size())
        index_.prefetch(waiting.wants[waiting.*done + kPrefetchesAhead].first);
      const auto& wanted = waiting.wants[waiting.*done];
      const GroupSet groups = wanted_groups(waiting, waiting.*done);
      if (groups != 0 && still_there(wanted) && !transfers_.prefetch(wanted.first, groups)) {
        prefetched_ = true;  // what comes later has no more right to room
        return false;
      }
    }
    places.erase(places.begin());
  }
  return true;
}

void QueueNeeds::check_invariants(const FindWaiting& find) const {
  forecast_.check_invariants();
  wanters_.check_invariants();
  const auto is_wanted_by = [this](const Want& wanted, const QueuePlace& place) {
    const Wanters* wanters = wanters_.find(wanted.second);
    return wanters != nullptr && (place == wanters->first || wanters->others.contains(place));
  };
  const auto are_counted = [this](const Want& wanted) {
    const Wanters& wanters = *wanters_.find(wanted.second);
    const auto seeing = std::ranges::count_if(wanters.others, [](const auto& other) { return other.second; });
    return wanters.seeing == static_cast<std::uint64_t>(seeing) + (wanters.first_sees ? 1 : 0);
  };
  std::uint64_t in_window = 0, wants = 0;
  for (const auto& [arrival, waiting] : waiting_) {
    const QueuePlace place{waiting.place, arrival};
    in_window += waiting.in_window ? 1 : 0;
    wants += waiting.wants.size();
    LOCI_CHECK(waiting.in_window || waiting.wants.empty(),
               "invariant 10: who is outside the window wants nothing");
    LOCI_CHECK(waiting.in_window == forecast_.in_window(arrival),
               "invariant 10: the window is that of the forecast");
    LOCI_CHECK(!waiting.in_window || places_.contains(place),
               "invariant 10: who is in the window has a place");
    LOCI_CHECK(waiting.prefetched == waiting.wants.size() || unprefetched_.contains(place),
               "invariant 10: what is not looked at for a prefetch will be");
    for (const auto& wanted : waiting.wants)
      LOCI_CHECK(is_wanted_by(wanted, place) && are_counted(wanted),
                 "invariant 10: a block knows who wants it, and whose windows see it");
    for (const auto& [number, rotated] : waiting.rotated)
      LOCI_CHECK(is_wanted_by(rotated, place), "invariant 10: and so does what it is rotated into");
    LOCI_CHECK(find(waiting.id) == waiting.request, "invariant 10: who waits is there and does not run");
  }
  for (const auto& [place, wants_of] : left_) {
    for (const auto& wanted : wants_of)
      LOCI_CHECK(is_wanted_by(wanted, place), "invariant 10: a mark stays until it is given up");
  }
  LOCI_CHECK(in_window == forecast_.window_size() && in_window == places_.size() && wants == wants_,
             "invariant 10: sums are sums");
  LOCI_CHECK(forecast_.size() == waiting_.size(), "invariant 10: who waits is expected to be admitted");
}

}  // namespace loci
