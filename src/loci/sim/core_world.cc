// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/core_world.h"

#include <algorithm>

#include "loci/base/random.h"
#include "loci/engine/log/event_log_codec.h"
#include "loci/policy/pass_budget.h"
#include "loci/sim/core_world_require.h"

namespace loci {
namespace {

constexpr std::uint64_t kFinishPassesMax = 200'000;

}  // namespace

World::World(const CoreWorldOptions& options, Chooser choose)
    : options_(options), choose_(std::move(choose)), core_(Core::make(options.config).value()) {
  for (const CoreGroup& group : options.config.groups) {
    device_.emplace_back(group.block_count);
    lower_[1].emplace_back(group.host_blocks);
    lower_[2].emplace_back(group.disk_blocks);
  }
  if (options.config.hidden.disk_blocks > 0) lower_[2].emplace_back(options.config.hidden.disk_blocks);
  recover();
}

// --- the model ---

std::uint64_t World::prefix_begin(const std::string& group) const {
  std::uint64_t hash = 7;
  for (const char c : group) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::uint64_t World::extend(std::uint64_t prefix, TokenId token) {
  return mix64(prefix * 0x100000001b3u + token.value + 1) | 1;
}

TokenId World::next_token(std::uint64_t prefix) const {
  return TokenId(static_cast<std::uint32_t>(mix64(prefix ^ 0xabcdef) % options_.vocabulary));
}

std::uint64_t World::prefix_hash(const std::string& group, const std::vector<TokenId>& tokens,
                                 std::size_t count) const {
  std::uint64_t hash = prefix_begin(group);
  for (std::size_t i = 0; i < count; ++i) hash = extend(hash, tokens[i]);
  return hash;
}

// Whether state of the first `count` tokens may be there for all.
bool World::is_public_state(const std::vector<TokenId>& tokens, std::size_t count) const {
  return published_.contains(prefix_hash(kPublicGroup, tokens, count));
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
                     .group = what % tenants == 0 ? "g" : "h",
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
    } else if (what == 15 && options_.config.groups.front().disk_blocks > 0 && one_in(4)) {
      change_disk_room();
    } else if (what == 18 && options_.memory_rooms && one_in(2)) {
      change_memory_room();
    } else if (what == 16 && options_.events >= 100 && one_in(8)) {
      change_costs();
    } else if (what == 17 && !options_.nothing_is_evicted && !clients_.empty() && one_in(4)) {
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
  const auto add = [this](std::uint64_t value) { history_.digest = mix64(history_.digest ^ value); };
  for (const std::uint64_t value :
       {stats.tokens_cached_total, stats.tokens_prompt_total, stats.tokens_generated_total,
        stats.tokens_computed_total, stats.evictions_total, stats.suspensions_total, stats.rejections_total,
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
  core_.check_invariants();
  for (const DiskNote& note : plan.notes) see(note);
  for (const Move& move : plan.moves) see(move);
  for (const SharedAsk& ask : plan.asks) see(ask);
  see_peers(plan);
  for (const ChainKey& key : plan.shared_forgets) {
    for (std::uint32_t group = 0; group < device_.size(); ++group) shared_.erase({key, group});
  }
  for (const FreedSlot& freed : plan.give_back) see(freed);
  see(plan);
  if (plan.pass) begin_pass(plan);
  check_wake(plan);
  // Who begins a pass asks for the next one, sooner or later.
  if (!plan.pass || options_.config.passes_ahead == 0) return;
  if (!options_.prompts.empty() || !one_in(4)) step(Tick{});
}

std::vector<TokenId> World::make_prompt(const std::string& group) {
  std::vector<TokenId> prompt;
  if (!clients_.empty() && !one_in(4)) {
    // A history: a client's that came lately, or any.
    auto from = clients_.rbegin();
    std::advance(from, static_cast<std::ptrdiff_t>(choose_(std::min<std::size_t>(clients_.size(), 12))));
    prompt = from->second.tokens;
    if (one_in(4)) {  // what the model will say is said by a client
      for (std::uint64_t more = choose_(40); more > 0; --more) {
        prompt.push_back(next_token(prefix_hash(group, prompt, prompt.size())));
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
  if (prompt.size() >= options_.config.context_tokens && !one_in(8)) {
    prompt.resize(1 + choose_(options_.config.context_tokens - 1));
  }
  return prompt;
}

void World::arrive() {
  Arrival arrival;
  arrival.request = RequestId(next_request_++);
  arrival.group = std::string(1, static_cast<char>('a' + choose_(options_.groups)));
  arrival.prompt = make_prompt(arrival.group);
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
  arrive(std::move(arrival));
}

void World::arrive(Arrival arrival) {
  Client client;
  client.is_public = arrival.scope == SharingScope::kPublic;
  client.group = client.is_public ? kPublicGroup : arrival.group;
  had_publics_ |= client.is_public;
  client.tokens = arrival.prompt;
  client.prompt_tokens = static_cast<std::uint32_t>(arrival.prompt.size());
  client.arrival = arrival;
  live_.push_back(arrival.request);
  clients_.emplace(arrival.request, std::move(client));
  // Every other one brings the names of its blocks.
  const CoreConfig& config = options_.config;
  if (arrival.request.value % 2 == 0 && arrival.scope == SharingScope::kTenant && config.reuse &&
      arrival.dropped.empty())
    arrival.keys = prompt_keys(ChainKeyHasher(config.chain_secret, config.model_fingerprint), arrival);
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
  step(Forget{.group = arrival.group, .salt = arrival.salt, .tokens = client->second.tokens});
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
  require(freed.group < device_.size() && freed.slot.value < device_[freed.group].size(),
          "slots are of the pool");
  for (const WorldMove& begun : moves_) {
    for (const MovePart& part : begun.move.parts) {
      const bool reads = begun.move.from == Tier::kDevice && part.from == freed.slot;
      const bool writes = begun.move.to == Tier::kDevice && part.to == freed.slot;
      require(part.group != freed.group || (!reads && !writes), "what moves stays");
    }
  }
  for (Row& row : device_[freed.group][freed.slot.value]) row = {};
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
  step(Pause{.request = id, .paused = from.paused});
}

void World::resume_all() {
  for (const RequestId id : std::vector<RequestId>(live_)) {
    if (!client(id).paused) continue;
    client(id).paused = false;
    step(Pause{.request = id, .paused = false});
  }
}

void World::finish_pass() {
  if (!flights_.front().ran) run_pass(flights_.front());
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (options_.passes_take_time) now_ += time_of(*flight.plan.pass);
  for (const auto& [request, prefix] : flight.written) {
    if (!client(request).ended) committed_.insert(prefix);
  }
  step(flight.done);
}

Nanos World::time_of(const Pass& pass) {
  PassRows work;
  for (const Span& span : pass.spans) work.add(span.position, static_cast<std::uint32_t>(span.tokens.size()));
  const Nanos predicted = CostModel(options_.config.costs).pass(work.rows, work.context);
  return predicted / 2 + static_cast<Nanos>(choose_(static_cast<std::uint64_t>(predicted) * 3 / 2 + 1));
}

void World::run_next_pass() {
  const auto next = std::find_if(flights_.begin(), flights_.end(), [](const auto& f) { return !f.ran; });
  if (next != flights_.end()) run_pass(*next);
}

bool World::in_flight(RequestId request) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [&](const Flight& flight) { return flight.requests.contains(request); });
}

// --- the device ---

void World::begin_pass(const Plan& plan) {
  const Pass& pass = *plan.pass;
  require(flights_.size() <= options_.config.passes_ahead, "so many passes at a time");
  require(pass.id.value == ++last_pass_, "passes are numbered");
  require(pass.spans.size() == plan.spans.size() && !pass.spans.empty(), "each span has its plan");
  std::size_t rows = 0;
  for (const Span& span : pass.spans) rows += span.tokens.size();
  require(rows <= options_.config.max_batch_tokens, "a pass keeps to its budget");
  Flight& flight = flights_.emplace_back();
  flight.plan = plan;
  for (const SpanPlan& span : plan.spans) {
    flight.requests.insert(span.request);
    if (flights_.size() > 1 && flights_.front().requests.contains(span.request))
      flight.goes_on.insert(span.request);
  }
  if (options_.config.passes_ahead == 0) run_pass(flight);
}

void World::run_pass(Flight& flight) {
  const Pass& pass = *flight.plan.pass;
  copy_blocks(pass);
  flight.ran = true;
  PassDone& done = flight.done;
  done.pass = pass.id;
  std::vector<bool> failed(pass.spans.size());
  for (std::size_t i = 0; i < pass.spans.size(); ++i) {
    const RequestId request = flight.plan.spans[i].request;
    const bool nothing = follows_poisoned(flight, request);
    failed[i] = options_.poison_one_in > 0 && one_in(options_.poison_one_in);
    if (!arrive_loads(pass.spans[i]) || flight.doomed.contains(i)) failed[i] = true;
    if (failed[i] && flight.poisoned.insert(request).second && !nothing) ++client(request).poisoned_passes;
    if (nothing) flight.poisoned.insert(request);
    if (!flight.poisoned.contains(request)) client(request).poisoned_passes = 0;
    write_span(flight, i, flight.poisoned.contains(request));
  }
  for (std::size_t i = 0; i < pass.spans.size(); ++i) {
    const SpanPlan& span_plan = flight.plan.spans[i];
    if (flight.poisoned.contains(span_plan.request)) {
      // Spans after the poisoned one say that they are well, and have sampled nonsense.
      SpanOutcome nonsense;
      nonsense.ok = !failed[i];
      if (nonsense.ok && span_plan.sample) nonsense.sample = TokenId(options_.vocabulary + 1);
      bool after = follows_poisoned(flight, span_plan.request);
      for (std::size_t j = 0; j < i; ++j)
        after |= failed[j] && flight.plan.spans[j].request == span_plan.request;
      if (after || failed[i]) {
        done.spans.push_back(nonsense);
        continue;
      }
    }
    read_span(pass, i, span_plan);
    done.spans.push_back(outcome(pass.spans[i], span_plan));
  }
  last_run_ = flight;
}

// What the pass before has sampled, which the host may not have been told yet.
TokenId World::token_of(const Span& span, RequestId request) const {
  if (!span.token_of) return span.tokens.front();
  require(*span.token_of < last_run_.done.spans.size(), "a sample is of the pass before");
  const Span& from = last_run_.plan.pass->spans[*span.token_of];
  const SpanPlan& plan = last_run_.plan.spans[*span.token_of];
  require(plan.request == request && plan.sample, "a sample is the request's own");
  require(from.position + from.tokens.size() == span.position, "and of the token before");
  return last_run_.done.spans[*span.token_of].sample.value_or(TokenId(0));
}

bool World::follows_poisoned(const Flight& flight, RequestId request) const {
  return flight.goes_on.contains(request) && last_run_.poisoned.contains(request);
}

void World::copy_blocks(const Pass& pass) {
  for (const BlockCopy& copy : pass.copies) {
    ++history_.copies;
    require(copy.group < device_.size(), "copies are within a group");
    auto& slots = device_[copy.group];
    require(copy.from.value < slots.size() && copy.to.value < slots.size() && copy.from != copy.to,
            "copies are between slots of the pool");
    require(copy.tokens > 0 && copy.tokens < kBlockTokens, "a copy is of some tokens");
    for (std::uint32_t i = 0; i < copy.tokens; ++i) {
      const Row& from = slots[copy.from.value][i];
      Row& to = slots[copy.to.value][i];
      require(from.content != 0, "what is copied is there");
      require(from.writer_pass != pass.id.value, "nothing is copied from a copy of the same pass");
      require(to.writer_pass != pass.id.value, "one writer a row");
      to = {from.content, pass.id.value, 0};
    }
  }
}

World::Row& World::row(const Span& span, std::uint32_t group, std::size_t position) {
  const SlotId slot = span.tables[group].blocks[position / kBlockTokens];
  require(slot.value < device_[group].size(), "slots are of the pool");
  return device_[group][slot.value][position % kBlockTokens];
}

void World::check_span(const Flight& flight, const Span& span, const SpanPlan& plan) const {
  const Client& from = clients_.at(plan.request);
  const std::size_t end = span.position + span.tokens.size();
  if (span.token_of) {
    require(from.arrival.follows && plan.sample && span.tokens.size() == 1, "one token follows a sample");
    require(span.position <= from.tokens.size(), "a sample is followed at once");
    const bool known = span.position < from.tokens.size() && !follows_poisoned(flight, plan.request);
    require(!known || from.tokens[span.position] == token_of(span, plan.request), "by what was sampled");
  } else {
    require(!from.ended || flight.goes_on.contains(plan.request), "a span is of a request that is there");
    require(!span.tokens.empty() && end <= from.tokens.size(), "a span is within its sequence");
    require(std::equal(span.tokens.begin(), span.tokens.end(), from.tokens.begin() + span.position),
            "a span's tokens are its sequence's");
    require(plan.sample == (end == from.tokens.size()), "the last token is sampled from, no other");
  }
  require(span.tables.size() == device_.size(), "a table for each group");
  for (const BlockTable& table : span.tables) {
    require(table.blocks.size() * kBlockTokens >= end, "a table reaches to its span's end");
  }
  require(span.layers.begin == 0 && span.layers.end == options_.config.layers, "all layers");
  require((span.logits == LogitsWanted::kLast) == plan.sample, "logits where a sample is wanted");
}

void World::write_span(Flight& flight, std::size_t index, bool garbage) {
  const Pass& pass = *flight.plan.pass;
  const Span& span = pass.spans[index];
  const SpanPlan& plan = flight.plan.spans[index];
  const Client& from = client(plan.request);
  const std::size_t end = span.position + span.tokens.size();
  check_span(flight, span, plan);
  if (!plan.sample) ++history_.holes;
  history_.followed += span.token_of.has_value();
  history_.gone_on += !span.token_of && flight.goes_on.contains(plan.request);

  std::uint64_t prefix = prefix_hash(from.group, from.tokens, span.position);
  for (std::size_t p = span.position; p < end; ++p) {
    prefix = extend(prefix, span.token_of ? token_of(span, plan.request) : from.tokens[p]);
    bool written = false;
    for (std::uint32_t group = 0; group < device_.size(); ++group) {
      Row& place = row(span, group, p);
      if (p < span.tables[group].write_from) {
        ++history_.kept_rows;
        continue;
      }
      require(place.writer_pass != pass.id.value, "one writer a row");
      place = {garbage ? 0 : prefix, pass.id.value, plan.request.value};
      written = true;
    }
    require(written, "nothing is computed for nothing");
    if (!garbage) flight.written.emplace_back(plan.request, prefix);
  }
}

void World::read_span(const Pass& pass, std::size_t index, const SpanPlan& plan) {
  const Span& span = pass.spans[index];
  const Client& from = client(plan.request);
  const std::size_t end = span.position + span.tokens.size();
  std::uint64_t prefix = prefix_begin(from.group);
  std::vector<TokenId> tokens(from.tokens.begin(), from.tokens.begin() + span.position);
  for (std::size_t i = 0; i < span.tokens.size(); ++i)
    tokens.push_back(span.token_of ? token_of(span, plan.request) : span.tokens[i]);
  for (std::uint32_t p = 0; p < end; ++p) {
    prefix = extend(prefix, tokens[p]);
    for (std::uint32_t group = 0; group < device_.size(); ++group) {
      if (p < first_visible(options_.config.groups[group].window, span.position)) continue;
      const Row& place = row(span, group, p);
      require(place.writer_pass != pass.id.value || place.writer == plan.request.value || place.writer == 0,
              "nobody writes what another reads");
      // (Rows that a poisoned later span of this request wrote are past this span's end.)
      const bool is_public = had_publics_ && place.content != prefix &&
                             place.content == prefix_hash(kPublicGroup, tokens, p + 1) &&
                             is_public_state(tokens, p + 1);
      history_.public_rows += is_public;
      require(is_public || place.content == prefix, "what a span attends to is there, and of its own prefix");
    }
  }
}

SpanOutcome World::outcome(const Span& span, const SpanPlan& plan) {
  SpanOutcome result;
  if (!plan.sample) return result;
  const std::size_t last = span.position + span.tokens.size() - 1;
  result.sample = next_token(row(span, 0, last).content);
  const bool constrained = !client(plan.request).arrival.follows;
  if (options_.grammar_end_one_in > 0 && one_in(options_.grammar_end_one_in) && constrained) {
    result.end = one_in(2) ? GrammarEnd::kComplete : GrammarEnd::kFailed;
    if (result.end == GrammarEnd::kFailed || one_in(2)) result.sample.reset();
    client(plan.request).grammar_end = result.end;
  }
  return result;
}

}  // namespace loci
