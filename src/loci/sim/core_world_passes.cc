// SPDX-License-Identifier: Apache-2.0
// The world's passes: when they run, what their spans must be and read, and what they write to the device.
#include <algorithm>
#include <utility>

#include "loci/policy/pass_budget.h"
#include "loci/sim/core_world.h"
#include "loci/sim/core_world_require.h"

namespace loci {

void World::finish_pass() {
  if (!flights_.front().ran) run_pass(flights_.front());
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (options_.passes_take_time) now_ += time_of(*flight.plan.pass);
  for (const auto& [request, seen] : flight.written) {
    if (client(request).ended) continue;
    std::uint64_t& moved = committed_.try_emplace(seen.history, seen.moved).first->second;
    moved = std::min(moved, seen.moved);
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
  history_.copies += pass.copies.size();
  device_.copy(pass);
  flight.ran = true;
  PassDone& done = flight.done;
  done.pass = pass.id;
  if (options_.config.hidden.disk_blocks > 0)
    done.projected = {choose_(1'000), static_cast<Nanos>(choose_(1'000'000))};
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
  require(span.tables.size() == device_.groups(), "a table for each group");
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
  Client& from = client(plan.request);
  const std::size_t end = span.position + span.tokens.size();
  check_span(flight, span, plan);
  if (!plan.sample) ++history_.holes;
  history_.followed += span.token_of.has_value();
  history_.gone_on += !span.token_of && flight.goes_on.contains(plan.request);

  const std::vector<Seen> seen = seen_by(from, tokens_of(span, plan.request), from.tenant);
  for (std::size_t p = span.position; p < end; ++p) {
    bool written = false;
    for (std::uint32_t group = 0; group < device_.groups(); ++group) {
      WorldDevice::Row& place = device_.row(span, group, p);
      if (p < span.tables[group].write_from) {
        ++history_.kept_rows;
        continue;
      }
      require(place.writer_pass != pass.id.value, "one writer a row");
      place = {garbage ? 0 : seen[p].content(), pass.id.value, plan.request.value};
      written = true;
    }
    require(written, "nothing is computed for nothing");
    if (garbage) continue;
    flight.written.emplace_back(plan.request, seen[p]);
    if (from.tokens.size() == from.prompt_tokens && p < from.prompt_tokens)
      from.computed.insert(static_cast<std::uint32_t>(p));
  }
}

// The request's tokens up to the span's end.
std::vector<TokenId> World::tokens_of(const Span& span, RequestId request) {
  const Client& from = client(request);
  std::vector<TokenId> tokens(from.tokens.begin(), from.tokens.begin() + span.position);
  for (std::size_t i = 0; i < span.tokens.size(); ++i)
    tokens.push_back(span.token_of ? token_of(span, request) : span.tokens[i]);
  return tokens;
}

void World::read_span(const Pass& pass, std::size_t index, const SpanPlan& plan) {
  const Span& span = pass.spans[index];
  const Client& from = client(plan.request);
  const std::vector<TokenId> tokens = tokens_of(span, plan.request);
  const std::vector<Seen> seen = seen_by(from, tokens, from.tenant);
  const std::vector<Seen> of_all = had_publics_ ? seen_by(from, tokens, kPublicTenant) : seen;
  for (std::uint32_t p = 0; p < tokens.size(); ++p) {
    const std::uint64_t content = seen[p].content();
    for (std::uint32_t group = 0; group < device_.groups(); ++group) {
      if (p < first_visible(options_.config.groups[group].window, span.position)) continue;
      const WorldDevice::Row& place = device_.row(span, group, p);
      require(place.writer_pass != pass.id.value || place.writer == plan.request.value || place.writer == 0,
              "nobody writes what another reads");
      // (Rows that a poisoned later span of this request wrote are past this span's end.)
      const bool is_public = had_publics_ && place.content != content &&
                             place.content == of_all[p].content() && published_.contains(of_all[p].history);
      history_.public_rows += is_public;
      require(is_public || place.content == content,
              "what a span attends to is there, and of its own prefix");
    }
  }
}

SpanOutcome World::outcome(const Span& span, const SpanPlan& plan) {
  SpanOutcome result;
  if (!plan.sample) return result;
  const std::size_t last = span.position + span.tokens.size() - 1;
  result.sample = next_token(device_.row(span, 0, last).content);
  const bool constrained = !client(plan.request).arrival.follows;
  if (options_.grammar_end_one_in > 0 && one_in(options_.grammar_end_one_in) && constrained) {
    result.end = one_in(2) ? GrammarEnd::kComplete : GrammarEnd::kFailed;
    if (result.end == GrammarEnd::kFailed || one_in(2)) result.sample.reset();
    client(plan.request).grammar_end = result.end;
  }
  return result;
}

}  // namespace loci
