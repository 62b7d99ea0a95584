// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/clients.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci::sim {
namespace {

constexpr std::uint32_t kDropPercent = 50;  // of the context (AttentionStore §4.1)

// Where a trace does not say which requests are one conversation, so much text tells fronts: a system prompt
// and the begin of the first message.
constexpr std::uint64_t kBeginningTokens = 1024;

}  // namespace

Clients::Clients(const Trace& trace, const WorldOptions& options, Agenda& agenda, WorldReport& report)
    : trace_(trace),
      options_(options),
      agenda_(agenda),
      report_(report),
      turns_(trace.requests()),
      talks_(trace.conversations.size()),
      shares_first_turn_(sharing_first_turns(trace)) {
  asked_replies_.reserve(talks_.size());
  for (const Conversation& talk : trace.conversations) {
    std::uint32_t longest = 0;
    for (const Turn& turn : talk.turns) longest = std::max(longest, turn.reply_tokens);
    asked_replies_.push_back(longest);
  }
}

void Clients::begin() {
  report_.requests.reserve(turns_);
  for (std::uint32_t c = 0; c < talks_.size(); ++c) schedule_turn(c, 0);
}

std::vector<RequestId> Clients::live() const {
  std::vector<RequestId> out;
  for (const auto& [id, live] : live_) out.push_back(RequestId(id));
  return out;
}

void Clients::schedule_turn(std::uint32_t conversation, Nanos from) {
  Talk& talk = talks_[conversation];
  const std::vector<Turn>& turns = trace_.conversations[conversation].turns;
  if (talk.next_turn < turns.size()) {
    const Turn& turn = turns[talk.next_turn];
    agenda_.add({std::max(turn.at, from + turn.after), Happens::kDue, 0, conversation});
  } else {
    talk.tokens = {};
  }
}

std::optional<std::vector<TokenRange>> Clients::cuts(std::uint32_t conversation) const {
  const std::size_t history = talks_[conversation].tokens.size();
  const std::uint32_t context = options_.core.context_tokens;
  if (options_.overflow == Overflow::kStop) {
    if (history >= context) return std::nullopt;
    return std::vector<TokenRange>{};
  }
  const Result<Truncation> rule =
      Truncation::make({context, kDropPercent}, {0, std::min(asked_replies_[conversation], context / 2)});
  if (!rule.ok()) return std::nullopt;
  return rule->cuts(static_cast<std::uint32_t>(history));
}

void Clients::drop_turn(std::uint32_t conversation, std::uint32_t prompt_tokens) {
  RequestRecord& record = report_.requests.emplace_back();
  record.conversation = conversation;
  record.turn = static_cast<std::uint32_t>(talks_[conversation].next_turn++);
  record.arrived = record.ended = agenda_.now();
  record.prompt_tokens = prompt_tokens;
  record.outcome = Outcome::kTooLong;
}

void Clients::go_on_without(std::uint32_t conversation) {
  Talk& talk = talks_[conversation];
  const std::vector<Turn>& turns = trace_.conversations[conversation].turns;
  talk.tokens = {};
  while (talk.next_turn < turns.size() && turns[talk.next_turn].appends) drop_turn(conversation, 0);
  schedule_turn(conversation, agenda_.now());
}

std::optional<Arrival> Clients::take_turn(std::uint32_t conversation) {
  const Nanos now = agenda_.now();
  Talk& talk = talks_[conversation];
  const Turn& turn = trace_.conversations[conversation].turns[talk.next_turn];
  const std::size_t before = talk.begin(turn);
  const auto dropped = cuts(conversation);
  if (!dropped) {
    drop_turn(conversation, static_cast<std::uint32_t>(talk.tokens.size()));
    go_on_without(conversation);
    return std::nullopt;
  }
  Arrival arrival;
  arrival.prompt = talk.tokens;
  std::uint32_t gone = 0;
  for (const TokenRange& range : *dropped) gone += range.end - range.begin;
  if (options_.overflow == Overflow::kCut && !dropped->empty()) {
    const auto first = arrival.prompt.begin() + dropped->front().begin;
    arrival.prompt.erase(first, first + gone);
  } else {
    arrival.dropped = *dropped;
  }
  RequestRecord record;
  record.conversation = conversation;
  record.turn = static_cast<std::uint32_t>(talk.next_turn++);
  record.arrived = now;
  record.prompt_tokens = static_cast<std::uint32_t>(talk.tokens.size()) - gone;
  const auto fresh = static_cast<std::uint32_t>(talk.tokens.size() - before);
  if (turn.appends) record.history_tokens = record.prompt_tokens - std::min(record.prompt_tokens, fresh);
  if (finds_others(conversation, turn) && gone == 0)
    record.history_tokens = std::max(record.history_tokens, seen_.find(talk.tokens));
  const std::uint32_t room =
      options_.core.context_tokens - std::min(options_.core.context_tokens, record.prompt_tokens);
  arrival.max_new_tokens = std::max(1u, std::min(turn.reply_tokens, room));
  arrival.request = RequestId(report_.requests.size() + 1);
  if (options_.stateless)
    arrival.prompt.front() = TokenId(kWords + static_cast<std::uint32_t>(arrival.request.value));
  const std::optional<std::uint32_t>& client = trace_.conversations[conversation].client;
  arrival.tenant = client ? fmt::format("client-{}", *client) : "all";
  if (options_.deadline != kNever) arrival.deadline = now + options_.deadline;
  if (turn.cancel_after >= 0)
    agenda_.add({now + turn.cancel_after, Happens::kCancel, 0, arrival.request.value});
  if (options_.record_uses) SeenPrefixes::record(talk.tokens, talk.tokens.size(), report_.uses);
  report_.requests.push_back(record);
  Live& live = live_[arrival.request.value];
  if (has_fronts()) live.arrival = arrival;
  return arrival;
}

std::uint64_t Clients::beginning_of(RequestId id) const {
  const RequestRecord& one = record(id);
  const std::vector<Turn>& turns = trace_.conversations[one.conversation].turns;
  if (turns.size() > 1) return mix64(one.conversation + 1);
  std::uint64_t hash = 1, tokens = 0;
  for (const Piece& piece : turns.front().pieces) {
    if (tokens >= kBeginningTokens) break;
    hash = mix64(hash ^ mix64(piece.content ^ mix64(piece.skip)));
    tokens += piece.tokens;
  }
  return hash;
}

TokenId Clients::next_token(RequestId id) {
  const RequestRecord& record = of(id);
  const Turn& turn = trace_.conversations[record.conversation].turns[record.turn];
  const auto live = live_.find(id.value);
  const std::uint32_t said = live == live_.end() ? record.reply_tokens : live->second.said;
  return talks_[record.conversation].next_token(turn, said, id.value);
}

void Clients::mix(std::uint64_t a, std::uint64_t b) {
  report_.digest = mix64(report_.digest ^ mix64(a ^ mix64(b)));
}

void Clients::see(const Started& started) {
  RequestRecord& record = of(started.request);
  if (record.admitted == kNever) record.admitted = agenda_.now();
  take_sources(started.request, started.sources);
  record.planned = started.sources.restore.planned;
  live_.at(started.request.value).started = true;
  mix(started.request.value, started.cached_tokens);
}

void Clients::see(const Restored& restored) { take_sources(restored.request, restored.sources); }

void Clients::take_sources(RequestId id, const ContextSources& sources) {
  RequestRecord& record = of(id);
  const EarlyReadPace& reads = live_.at(id.value).reads;
  const ContextSources from = reads.as_read(sources);
  record.from = {from.device, from.host, from.disk, from.shared};
  // What was computed for it just before, elsewhere or for a read, is not from the past.
  record.from[3] -= std::min(record.from[3], record.prefilled);
  record.from[0] -= std::min(record.from[0], reads.computed());
  record.hidden = from.hidden;
}

void Clients::see(const TokenSampled& sampled) {
  RequestRecord& record = of(sampled.request);
  Live& live = live_.at(sampled.request.value);
  std::vector<TokenId>& tokens = talks_[record.conversation].tokens;
  if (live.said == 0 && has_fronts()) begun_.push_back(sampled.request);
  if (live.said++ < record.reply_tokens) {
    const std::size_t place = tokens.size() - record.reply_tokens + live.said - 1;
    LOCI_CHECK(tokens[place] == sampled.token, "a token that comes again is the one that the client has");
    ++counts_.again;
    return;
  }
  if (record.first_token == kNever) record.first_token = agenda_.now();
  if (live.lost_at != kNever) {
    record.pause = std::max(record.pause, agenda_.now() - live.lost_at);
    live.lost_at = kNever;
  }
  ++record.reply_tokens;
  ++counts_.told;
  if (options_.record_tokens)
    report_.tokens.push_back({static_cast<std::uint32_t>(sampled.request.value - 1), agenda_.now()});
  tokens.push_back(sampled.token);
  mix(sampled.request.value, static_cast<std::uint64_t>(agenda_.now()));
}

void Clients::repeat(RequestId id) {
  RequestRecord& record = of(id);
  Live& live = live_.at(id.value);
  if (live.started) counts_.prompts_again += record.prompt_tokens;
  ++record.moved;
  live.said = 0;
  live.started = false;
  record.prefilled = 0;
  live.reads = {};
  if (live.lost_at == kNever) live.lost_at = agenda_.now();
  talks_[record.conversation].say_again();
}

void Clients::end(RequestId id, Outcome outcome) {
  RequestRecord& record = of(id);
  LOCI_CHECK(record.outcome == Outcome::kWaits && live_.erase(id.value) == 1, "a request ends once");
  record.outcome = outcome;
  record.ended = agenda_.now();
  if (has_fronts()) ended_.push_back(id);
  mix(id.value, static_cast<std::uint64_t>(outcome));
  const std::uint32_t c = record.conversation;
  if (outcome == Outcome::kTooLong) return go_on_without(c);
  const std::vector<TokenId>& tokens = talks_[c].tokens;
  if (options_.record_uses) {
    const std::size_t prompt = tokens.size() - record.reply_tokens;
    if (record.reply_tokens > 0) SeenPrefixes::record(tokens, prompt, report_.uses);
  }
  if (finds_others(c, trace_.conversations[c].turns[record.turn])) seen_.add(talks_[c].tokens);
  schedule_turn(c, agenda_.now());
}

}  // namespace loci::sim
