// SPDX-License-Identifier: Apache-2.0
// What the world expects of the core's outputs, and of the end.
#include <algorithm>

#include "loci/sim/core_world.h"
#include "loci/sim/core_world_require.h"

namespace loci {

// --- what the core says ---

void World::see(const Plan& plan) {
  for (const Output& output : plan.outputs) {
    std::visit([this](const auto& o) { see(o); }, output);
  }
  require(!drained_ || plan.drained, "drained stays");
  drained_ = plan.drained;
  const bool is_idle = draining_ && live_.empty() && moves_.empty() && flights_.empty();
  require(!plan.drained || is_idle, "drained when nothing is left");
  // (What is to be deleted is, before it stops.)
  require(plan.drained || !is_idle || core_.stats().forgets_waiting > 0, "drained once nothing is left");
}

// The most tokens of a sequence: a pool holds all of it, or all that any token sees.
std::size_t World::length_max() const {
  std::size_t most = options_.config.context_tokens;
  for (const CoreGroup& group : options_.config.groups) {
    const std::size_t window = std::max(group.window, kBlockTokens);
    const bool whole = group.window == 0 || group.window >= options_.config.context_tokens;
    // The blocks that a window of tokens can touch.
    const std::size_t touched = (window + kBlockTokens - 2) / kBlockTokens + 1;
    if (whole || group.block_count < touched)
      most = std::min(most, std::size_t{group.block_count} * kBlockTokens);
  }
  return most;
}

void World::see(const Started& output) {
  Client& started = client(output.request);
  require(!started.started && !started.ended, "a request starts once");
  started.started = true;
  started.cached_tokens = output.cached_tokens;
  const ContextSources& from = output.sources;
  if (from.host + from.disk > 0 && from.computed[static_cast<std::size_t>(MissReason::kTooSlow)] > 0) {
    ++history_.partial_loads[static_cast<std::size_t>(from.restore.rule)];
    history_.partial_holes += from.computed[static_cast<std::size_t>(MissReason::kEvicted)] > 0;
    history_.partial_copies += from.device % kBlockTokens != 0;
  }
  check_cached(started, from.shared);
  if (options_.ends_are_found) check_end_found(started);
}

void World::see(const Restored& output) {
  Client& from = client(output.request);
  require(from.started && !from.restored && !from.ended && from.tokens.size() == from.prompt_tokens,
          "sources are told once, before the first token");
  from.restored = true;
  const std::uint32_t cached = output.sources.cached();
  std::uint32_t sum = cached;
  for (const std::uint32_t tokens : output.sources.computed) sum += tokens;
  require(sum == from.prompt_tokens, "a prompt was found or computed");
  require(cached <= from.cached_tokens, "nothing is found that was not");
  from.cached_tokens = cached;
}

// It goes on from the last token of the longest sequence that it continues.
void World::check_end_found(const Client& started) {
  const std::vector<Seen> seen = seen_by(started, started.tokens, started.tenant);
  for (std::uint32_t known = started.prompt_tokens - 1; known > 0; --known) {
    if (!ends_.contains(seen[known - 1].history)) continue;
    ++history_.ends_continued;
    require(started.cached_tokens >= known, "nothing of a sequence that goes on is computed again");
    return;
  }
}

// Against the naive model: all prefixes whose state was ever computed.
// `said`: tokens that a shared store, which may lie, said that it has.
void World::check_cached(const Client& started, std::uint32_t said) const {
  std::uint32_t known = 0;
  const std::vector<Seen> seen = seen_by(started, started.tokens, started.tenant);
  const std::vector<Seen> of_all = seen_by(started, started.tokens, kPublicTenant);
  for (std::uint32_t i = 0; i + 1 < started.prompt_tokens; ++i) {
    const auto computed = committed_.find(seen[i].history);
    const bool is_known = computed != committed_.end() && computed->second <= seen[i].moved;
    if (is_known || (had_publics_ && published_.contains(of_all[i].history))) ++known;
  }
  // (Behind a window nothing is loaded of what it is said to have.)
  require(said > 0 || started.cached_tokens <= known, "only state that was computed is cached");
  // Among others, some of a block that another request fills just now may be in a third place as well.
  if (options_.nothing_is_evicted && options_.live_max == 1 && !had_publics_) {
    require(started.cached_tokens == known, "all state that is there is found");
  }
}

void World::see(const TokenSampled& output) {
  Client& from = client(output.request);
  require(from.restored && !from.ended, "tokens come between start and end");
  require(from.tokens.empty() || from.grammar_end != GrammarEnd::kFailed,
          "a grammar that fails gives no token");
  const std::uint64_t state = from.tokens.empty() ? prefix_begin(from.tenant)
                                                  : seen_by(from, from.tokens, from.tenant).back().content();
  require(output.token == next_token(state), "the tokens are those of the model");
  from.tokens.push_back(output.token);
}

void World::see(const Finished& output) {
  Client& from = client(output.request);
  require(!from.ended, "one end a request");
  from.ended = true;
  erase_value(live_, output.request);
  const auto sampled = static_cast<std::uint32_t>(from.tokens.size()) - from.prompt_tokens;
  if (sampled > 0 && !from.cancelled)  // the last token is sampled, and not computed
    ends_.insert(prefix_hash(from.tenant, from.tokens, from.tokens.size() - 1));
  require(output.usage.prompt_tokens == from.prompt_tokens && output.usage.completion_tokens == sampled &&
              output.usage.cached_tokens == from.cached_tokens,
          "usage counts");
  const bool gave_way = output.usage.suspensions > 0 || from.was_paused;
  require(gave_way || from.computed.size() <= from.prompt_tokens - from.cached_tokens,
          "what was computed does not count as cached");
  const bool stopped =
      sampled > 0 && sampled >= from.arrival.min_new_tokens &&
      std::count(from.arrival.stop_tokens.begin(), from.arrival.stop_tokens.end(), from.tokens.back()) > 0;
  switch (output.reason) {
    case FinishReason::kStop:
      require(from.is_public ? sampled == 0 : stopped || from.grammar_end == GrammarEnd::kComplete,
              "a stop token or a grammar stops");
      if (from.is_public) {
        public_.push_back(output.request);
        for (std::size_t i = 1; i <= from.tokens.size(); ++i) {
          published_.insert(prefix_hash(kPublicTenant, from.tokens, i));
        }
      }
      break;
    case FinishReason::kLength:
      require(
          !public_.empty() || sampled == from.arrival.max_new_tokens || from.tokens.size() == length_max(),
          "a length ends");
      break;
    case FinishReason::kCancelled: require(from.cancelled, "who was cancelled ends so"); break;
    case FinishReason::kDeadline:
      require(from.arrival.deadline <= now_ || (draining_ && drain_deadline_ <= now_), "a deadline came");
      break;
    case FinishReason::kFailed:
      require(from.poisoned_passes == kPoisonedPassesMax, "retries have a bound");
      break;
    case FinishReason::kGrammar: require(from.grammar_end == GrammarEnd::kFailed, "a grammar failed"); break;
  }
}

void World::see(const Rejected& output) {
  Client& from = client(output.request);
  require(!from.started && !from.ended, "who started is not refused");
  from.ended = true;
  erase_value(live_, output.request);
  ++rejected_;
  if (output.may_come_again()) ++rejected_for_now_;
  switch (output.status.code()) {
    case StatusCode::kInvalidArgument:
      require(from.prompt_tokens >= length_max() || from.is_public || !public_.empty(), "what fits is taken");
      break;
    case StatusCode::kUnavailable: require(draining_, "unavailable while draining"); break;
    case StatusCode::kResourceExhausted:
      require(output.retry_after > 0, "a time to try again");
      require(live_.size() >= std::min(options_.config.max_queued, from.arrival.queued_max == 0
                                                                       ? options_.config.max_queued
                                                                       : from.arrival.queued_max),
              "the queue was full, or the tenant's part of it");
      break;
    default: require(false, "an unknown refusal");
  }
}

void World::check_wake(const Plan& plan) const {
  require(plan.wake_at > now_, "a wish to wake is for later");
  for (const RequestId id : live_) {
    const Client& waiting = clients_.at(id);
    require(waiting.arrival.deadline > now_ || in_flight(id), "deadlines are kept");
    if (waiting.arrival.deadline > now_ && !waiting.cancelled && drain_deadline_ > now_) {
      require(plan.wake_at <= waiting.arrival.deadline, "a deadline is waited for");
    }
  }
  if (!live_.empty() && drain_deadline_ > now_) require(plan.wake_at <= drain_deadline_, "the drain's too");
  // (What goes on from a sample that has ended its request ends later.)
  const bool none_goes_on =
      std::all_of(live_.begin(), live_.end(), [&](RequestId id) { return clients_.at(id).paused; });
  require(live_.empty()
              ? flights_.size() <= options_.config.passes_ahead
              : none_goes_on || !flights_.empty() || !moves_.empty() || core_.stats().before_queue > 0,
          "while there are requests, a pass, a move or a question is in flight, or all are paused");
  for (const RequestId id : live_) {
    require(in_flight(id) || clients_.at(id).poisoned_passes < kPoisonedPassesMax, "then they end");
  }
}

void World::check_end() {
  while (!public_.empty()) {
    require(core_.stats().blocks_pinned > 0, "what is public stays");
    const RequestId prefix = public_.back();
    public_.pop_back();
    step(Withdraw{prefix});
  }
  while (!moves_.empty()) end_some_moves();
  require(core_.public_prefixes().empty(), "what is released is public no more");
  require(live_.empty(), "every request has ended");
  for (const auto& [id, client] : clients_) require(client.ended, "every request has one end");
  history_.stats = core_.stats();
  digest_stats();
  require(peer_reads_.empty(), "every part that a peer wanted has an end");
  require(history_.stats.blocks_pinned == 0, "nothing is pinned at the end");
  require(history_.stats.running == 0 && history_.stats.queued == 0, "nothing runs at the end");
}

}  // namespace loci
