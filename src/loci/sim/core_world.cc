// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/core_world.h"

#include <algorithm>

#include "loci/base/random.h"
#include "loci/engine/log/event_log_codec.h"
#include "loci/sim/core_world_require.h"

namespace loci {
namespace {

constexpr std::uint64_t kFinishPassesMax = 200'000;

}  // namespace

World::World(const CoreWorldOptions& options, Chooser choose)
    : options_(options),
      choose_(std::move(choose)),
      core_(Core::make(options.config).value()),
      device_(options.config.groups) {
  for (const CoreGroup& group : options.config.groups) {
    lower_[1].emplace_back(group.host_blocks);
    lower_[2].emplace_back(group.disk_blocks);
  }
  if (options.config.hidden.disk_blocks > 0) lower_[2].emplace_back(options.config.hidden.disk_blocks);
  core_.watch_places();
  recover();
}

// --- the model ---

std::uint64_t World::prefix_begin(const std::string& tenant) const {
  std::uint64_t hash = 7;
  for (const char c : tenant) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::uint64_t World::extend(std::uint64_t prefix, TokenId token) {
  return mix64(prefix * 0x100000001b3u + token.value + 1) | 1;
}

TokenId World::next_token(std::uint64_t prefix) const {
  return TokenId(static_cast<std::uint32_t>(mix64(prefix ^ 0xabcdef) % options_.vocabulary));
}

std::uint64_t World::prefix_hash(const std::string& tenant, const std::vector<TokenId>& tokens,
                                 std::size_t count) const {
  std::uint64_t hash = prefix_begin(tenant);
  for (std::size_t i = 0; i < count; ++i) hash = extend(hash, tokens[i]);
  return hash;
}

std::vector<TokenId> World::history_of(const Client& client) {
  std::vector<TokenId> history = client.tokens;
  history.insert(history.begin() + static_cast<std::ptrdiff_t>(client.front), client.dropped.begin(),
                 client.dropped.end());
  return history;
}

std::vector<World::Seen> World::seen_by(const Client& client, const std::vector<TokenId>& tokens,
                                        const std::string& tenant) const {
  std::vector<Seen> seen;
  Seen at{.history = prefix_begin(tenant)};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i == client.front) {
      for (const TokenId token : client.dropped) at.history = extend(at.history, token);
      at.moved = client.dropped.size();
    }
    at.history = extend(at.history, tokens[i]);
    seen.push_back(at);
  }
  return seen;
}

World::Client& World::client(RequestId id) {
  const auto found = clients_.find(id);
  require(found != clients_.end(), "an output names a request that nobody sent");
  return found->second;
}

// --- what happens ---

WorldHistory World::run() {
  if (options_.prompts.empty()) {
    run_random();
  } else {
    run_small();
  }
  resume_all();
  for (std::uint64_t passes = 0; !flights_.empty() || !moves_.empty() || core_.stats().before_queue > 0 ||
                                 core_.stats().peers_waiting > 0;
       ++passes) {
    require(passes < kFinishPassesMax, "what runs never finishes");
    if (options_.prompts.empty()) now_ += static_cast<Nanos>(choose_(3));
    if (!flights_.empty() && (moves_.empty() || is_small() || one_in(2))) {
      finish_pass();
    } else if (!moves_.empty()) {
      is_small() ? end_moves(moves_.size()) : end_some_moves();
    } else if (!asks_.empty() && one_in(2)) {
      answer_one();
    } else {
      now_ += kNanosPerSecond;  // nobody answers
      step(Tick{});
    }
  }
  check_end();
  return history_;
}

void World::run_small() {
  if (!options_.public_prompt.empty()) {
    Arrival prefix{RequestId(next_request_++), "g", options_.public_prompt, 1, 0, {}, kNever};
    prefix.scope = SharingScope::kPublic;
    arrive(std::move(prefix));
    while (!flights_.empty()) finish_pass();
  }
  for (std::uint32_t i = 0; i < options_.events; ++i) {
    ++now_;
    const std::uint64_t tenants = options_.public_prompt.empty() ? 1 : 2;
    const bool full = clients_.size() >= options_.live_max;
    const std::uint64_t arrivals = full ? 0 : options_.prompts.size() * tenants;
    const std::uint64_t cancels = options_.cancels ? live_.size() : 0;
    const std::uint64_t passes = flights_.empty() ? 0 : 1, moves = moves_.empty() ? 0 : 1;
    const std::uint64_t restarts = options_.restarts && history_.restarts == 0 ? 1 : 0;
    if (arrivals + cancels + passes + moves + restarts == 0) return;
    const std::uint64_t what = choose_(arrivals + cancels + passes + moves + restarts);
    if (what < arrivals) {
      arrive(Arrival{.request = RequestId(next_request_++),
                     .tenant = what % tenants == 0 ? "g" : "h",
                     .prompt = options_.prompts[what / tenants],
                     .max_new_tokens = options_.new_tokens_max,
                     .min_new_tokens = 0,
                     .stop_tokens = {},
                     .dropped = {},
                     .follows = options_.config.passes_ahead > 0});
    } else if (what < arrivals + cancels) {
      const RequestId id = live_[what - arrivals];
      client(id).cancelled = true;
      step(Cancel{id});
    } else if (what < arrivals + cancels + passes) {
      finish_pass();
    } else if (what < arrivals + cancels + passes + moves) {
      end_moves(1);
    } else {
      restart();
    }
  }
}

void World::run_random() {
  for (std::uint32_t i = 0; i < options_.events; ++i) {
    now_ += static_cast<Nanos>(choose_(4));
    const std::uint64_t what = choose_(20);
    if (what < 6 && live_.size() < options_.live_max) {
      arrive();
    } else if (what == 6 && options_.cancels) {
      cancel_one();
    } else if (what == 9 && !public_.empty() && one_in(3)) {
      release_one();
    } else if (what == 7) {
      step(Tick{});
    } else if (what == 8 && options_.drain && one_in(20)) {
      const Nanos deadline = one_in(2) ? kNever : now_ + static_cast<Nanos>(choose_(200));
      drain_deadline_ = std::min(drain_deadline_, deadline);
      draining_ = true;
      step(Drain{deadline});
    } else if (has_shared() && !asks_.empty() && (flights_.empty() || what % 3 == 0)) {
      answer_one();
    } else if (has_shared() && what == 10 && one_in(2)) {
      act_as_peer();
    } else if (has_shared() && what == 19 && one_in(4)) {
      lose_some();
    } else if (!moves_.empty() && (flights_.empty() || what % 2 == 0)) {
      end_some_moves();
    } else if (what == 11 && options_.restarts && one_in(10)) {
      restart();
    } else if (what == 15 && options_.config.groups.front().disk_blocks > 0 && !options_.ends_are_found &&
               one_in(4)) {
      change_disk_room();
    } else if (what == 18 && options_.memory_rooms && one_in(2)) {
      change_memory_room();
    } else if (what == 16 && options_.events >= 100 && one_in(8)) {
      change_costs();
    } else if (what == 17 && !options_.nothing_is_evicted && !options_.ends_are_found && !clients_.empty() &&
               one_in(4)) {
      forget_one();
    } else if (what == 19 && options_.pauses && one_in(3)) {
      pause_one();
    } else if (what == 13 && options_.config.state_ttl != kNever && one_in(4)) {
      now_ += static_cast<Nanos>(choose_(50)) * kNanosPerMilli;
      step(Tick{});
    } else if (!flights_.empty()) {
      finish_pass();
    }
    if (options_.config.passes_ahead > 0 && one_in(3)) run_next_pass();
  }
}

void World::digest_stats() {
  const CoreStats stats = core_.stats();
  require(stats.rejections_total == rejected_for_now_, "what was invalid counts as no rejection");
  const auto add = [this](std::uint64_t value) { history_.digest = mix64(history_.digest ^ value); };
  for (const std::uint64_t value :
       {stats.tokens_cached_total, stats.tokens_prompt_total, stats.tokens_generated_total,
        stats.tokens_computed_total, stats.evictions_total, stats.suspensions_total, rejected_,
        stats.passes_total, stats.passes_ahead_total, stats.spans_wasted_total, stats.saves_dropped_total,
        stats.recovered_total, stats.orphans_total}) {
    add(value);
  }
  for (const TierStats& tier : stats.tiers) add(tier.evictions_total ^ (std::uint64_t{tier.free} << 32));
  for (const LinkStats& link : stats.moves) {
    for (const std::uint64_t ended : link.ended) add(ended);
  }
  for (const std::uint64_t tokens : stats.tokens_from_total) add(tokens);
  for (const std::uint64_t tokens : stats.tokens_missed_total) add(tokens);
}

void World::step(const Event& event) {
  history_.events.emplace_back(now_, event);
  const Plan plan = core_.step(now_, event);
  history_.plan_digests.push_back(plan_digest(plan));
  history_.digest = mix64(history_.digest ^ history_.plan_digests.back());
  core_.check_invariants();  // that what was told of blocks' places is so, among them
  core_.take_moved();
  for (const RecordChange& change : plan.record_changes) see(change);
  const bool admits = std::ranges::any_of(
      plan.outputs, [](const Output& output) { return std::holds_alternative<Started>(output); });
  for (const Move& move : plan.moves) {
    see(move);
    history_.rotated_ahead += move.rotate_by != 0 && !admits;
  }
  for (const SharedAsk& ask : plan.asks) see(ask);
  see_peers(plan);
  for (const ChainKey& key : plan.shared_forgets) {
    for (std::uint32_t group = 0; group < device_.groups(); ++group) shared_.erase({key, group});
  }
  for (const FreedSlot& freed : plan.give_back) see(freed);
  see(plan);
  if (plan.pass) begin_pass(plan);
  check_wake(plan);
  // Who begins a pass asks for the next one, sooner or later.
  if (!plan.pass || options_.config.passes_ahead == 0) return;
  if (!options_.prompts.empty() || !one_in(4)) step(Tick{});
}

// Of the clients that came lately.
std::map<RequestId, World::Client>::reverse_iterator World::longest_conversation() {
  auto longest = clients_.rbegin();
  std::size_t looked = 0;
  for (auto at = clients_.rbegin(); at != clients_.rend() && looked < 12; ++at, ++looked) {
    const auto length = [](const Client& client) { return client.tokens.size() + client.dropped.size(); };
    if (length(at->second) > length(longest->second)) longest = at;
  }
  return longest;
}

std::vector<TokenId> World::make_prompt(const std::string& tenant) {
  std::vector<TokenId> prompt;
  if (!clients_.empty() && !one_in(4)) {
    // A history: a client's that came lately, or any.
    auto from = clients_.rbegin();
    std::advance(from, static_cast<std::ptrdiff_t>(choose_(std::min<std::size_t>(clients_.size(), 12))));
    if (options_.cuts && !one_in(4)) from = longest_conversation();
    prompt = history_of(from->second);
    if (options_.cuts && prompt.size() > 4 * std::size_t{options_.config.context_tokens}) prompt.clear();
    if (one_in(4)) {  // what the model will say is said by a client
      for (std::uint64_t more = choose_(40); more > 0; --more) {
        prompt.push_back(next_token(prefix_hash(tenant, prompt, prompt.size())));
      }
    }
    const std::uint64_t cut = choose_(6);
    if (cut == 0) prompt.resize(choose_(prompt.size() + 1));
    if (cut == 1) prompt.resize(prompt.size() / kBlockTokens * kBlockTokens);
    if (cut == 2 && !prompt.empty()) prompt.pop_back();
  }
  const bool first = prompt.empty() && options_.first_tokens_max > 0;
  const std::uint32_t most = first ? options_.first_tokens_max : options_.turn_tokens_max;
  for (std::uint64_t more = choose_(most + 1); more > 0; --more) {
    prompt.push_back(TokenId(static_cast<std::uint32_t>(choose_(options_.vocabulary))));
  }
  if (prompt.empty()) prompt.push_back(TokenId(0));
  if (!options_.cuts && prompt.size() >= options_.config.context_tokens && !one_in(8)) {
    prompt.resize(1 + choose_(options_.config.context_tokens - 1));
  }
  return prompt;
}

void World::arrive() {
  // (What is still being loaded for one that has gone nobody else fills.)
  const auto loads = [](const WorldMove& begun) { return begun.move.to == Tier::kDevice; };
  while (options_.ends_are_found && std::ranges::any_of(moves_, loads)) end_some_moves();
  Arrival arrival;
  arrival.request = RequestId(next_request_++);
  arrival.tenant = std::string(1, static_cast<char>('a' + choose_(options_.tenants)));
  arrival.prompt = make_prompt(arrival.tenant);
  arrival.max_new_tokens = 1 + static_cast<std::uint32_t>(choose_(options_.new_tokens_max));
  arrival.min_new_tokens = static_cast<std::uint32_t>(choose_(4));
  if (one_in(3)) {
    arrival.stop_tokens.push_back(TokenId(static_cast<std::uint32_t>(choose_(options_.vocabulary))));
  }
  arrival.weight = one_in(2) ? 1 : 1 + static_cast<std::uint32_t>(choose_(5));
  if (one_in(6)) arrival.queued_max = 1 + static_cast<std::uint32_t>(choose_(4));
  if (options_.publics && one_in(6)) arrival.scope = SharingScope::kPublic;
  if (options_.deadlines && one_in(8))
    arrival.deadline = now_ + static_cast<Nanos>(choose_(options_.passes_take_time ? 100'000 : 150));
  if (options_.config.passes_ahead > 0) arrival.follows = !one_in(4);
  if (options_.cuts && arrival.scope == SharingScope::kTenant) cut(arrival);
  arrive(std::move(arrival));
}

// As the server does, from turn to turn alike; or anyhow.
void World::cut(Arrival& arrival) {
  const auto blocks = static_cast<std::uint32_t>((arrival.prompt.size() - 1) / kBlockTokens);
  if (one_in(12) && blocks >= 2) {
    const auto front = 1 + static_cast<std::uint32_t>(choose_(blocks - 1));
    for (std::uint32_t begin = front; begin < blocks && (begin == front || one_in(2));) {
      const std::uint32_t end = begin + 1 + static_cast<std::uint32_t>(choose_(blocks - begin));
      arrival.dropped.push_back({begin * kBlockTokens, end * kBlockTokens});
      begin = end;
    }
    return;
  }
  const Result<Truncation> truncation =
      Truncation::make({options_.config.context_tokens, 50}, {.front_tokens = 0, .reply_tokens = 0});
  if (truncation.ok()) arrival.dropped = truncation->cuts(static_cast<std::uint32_t>(arrival.prompt.size()));
}

void World::arrive(Arrival arrival) {
  Client client;
  client.is_public = arrival.scope == SharingScope::kPublic;
  client.tenant = client.is_public ? kPublicTenant : arrival.tenant;
  had_publics_ |= client.is_public;
  client.tokens = arrival.prompt;
  if (!arrival.dropped.empty()) {
    ++history_.cuts;
    client.front = arrival.dropped.front().begin;
    const auto begin = client.tokens.begin() + arrival.dropped.front().begin;
    const auto end = client.tokens.begin() + arrival.dropped.back().end;
    client.dropped.assign(begin, end);
    client.tokens.erase(begin, end);
  }
  client.prompt_tokens = static_cast<std::uint32_t>(client.tokens.size());
  client.arrival = arrival;
  live_.push_back(arrival.request);
  clients_.emplace(arrival.request, std::move(client));
  // Every other one brings the names of its blocks.
  const CoreConfig& config = options_.config;
  if (arrival.request.value % 2 == 0) {
    const ChainKeyHasher hasher(config.chain_secret, config.model_fingerprint);
    arrival.keys = arrival_keys(config, hasher, *core_.public_chains(), arrival);
  }
  step(std::move(arrival));
}

void World::release_one() {
  const std::size_t at = choose_(public_.size());
  const RequestId prefix = public_[at];
  public_.erase(public_.begin() + static_cast<std::ptrdiff_t>(at));
  step(Withdraw{prefix});
}

// What somebody said, or may still be saying, is deleted.
void World::forget_one() {
  auto client = clients_.begin();
  std::advance(client, static_cast<std::ptrdiff_t>(choose_(clients_.size())));
  const Arrival& arrival = client->second.arrival;
  Forget event{.tenant = arrival.tenant, .salt = arrival.salt, .tokens = history_of(client->second)};
  if (arrival.request.value % 2 == 0) {  // as its arrival
    const ChainKeyHasher hasher(options_.config.chain_secret, options_.config.model_fingerprint);
    event.keys = forget_keys(hasher, *core_.public_chains(), event);
  }
  step(event);
}

// Somebody measured, and it is not what was believed.
void World::change_costs() {
  CostCurves costs = options_.config.costs;
  const auto other = [this](auto& value) { value = value * (1 + choose_(16)) / 4; };
  for (Nanos* cost : {&costs.token, &costs.pass, &costs.host_charge, &costs.disk_charge}) other(*cost);
  for (Nanos& cost : costs.attention) other(cost);
  for (LinkCost* link : {&costs.host_load, &costs.disk_read}) {
    other(link->latency);
    other(link->bytes_per_second);
  }
  step(CostsMeasured{costs});
}

void World::change_disk_room() {
  DiskRoom room;
  for (const CoreGroup& group : options_.config.groups) {
    room.slots.push_back(static_cast<std::uint32_t>(choose_(group.disk_blocks + 1)));
  }
  if (const std::uint32_t hidden = options_.config.hidden.disk_blocks; hidden > 0)
    room.slots.push_back(static_cast<std::uint32_t>(choose_(hidden + 1)));
  step(room);
}

// The machine's memory is short, or not any more.
void World::change_memory_room() {
  MemoryRoom room;
  for (const CoreGroup& group : options_.config.groups)
    room.slots.push_back(one_in(3) ? group.block_count
                                   : static_cast<std::uint32_t>(choose_(group.block_count + 1)));
  step(room);
}

// What was there is gone; whoever still reads it sees that.
void World::see(const FreedSlot& freed) {
  ++history_.given_back;
  device_.block(freed.group, freed.slot) = {};
  for (const WorldMove& begun : moves_) {
    for (const MovePart& part : begun.move.parts) {
      const bool reads = begun.move.from == Tier::kDevice && part.from == freed.slot;
      const bool writes = begun.move.to == Tier::kDevice && part.to == freed.slot;
      require(part.group != freed.group || (!reads && !writes), "what moves stays");
    }
  }
}

void World::cancel_one() {
  if (clients_.empty()) return;
  // Mostly one that is there; sometimes one that has ended, or that never was.
  RequestId id(next_request_ + 5);
  if (!live_.empty() && !one_in(5)) {
    id = live_[choose_(live_.size())];
    client(id).cancelled = true;
  } else if (one_in(2)) {
    id = clients_.begin()->first;
    client(id).cancelled = true;
  }
  step(Cancel{id});
}

// A client stops taking what its request says, or takes it again.
void World::pause_one() {
  if (live_.empty()) return;
  const RequestId id = live_[choose_(live_.size())];
  Client& from = client(id);
  from.paused = !from.paused;
  history_.pauses += from.paused;
  from.was_paused = true;
  step(Pause{.request = id, .paused = from.paused});
}

void World::resume_all() {
  for (const RequestId id : std::vector<RequestId>(live_)) {
    if (!client(id).paused) continue;
    client(id).paused = false;
    step(Pause{.request = id, .paused = false});
  }
}

}  // namespace loci
