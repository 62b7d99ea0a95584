// SPDX-License-Identifier: Apache-2.0
// What becomes of a generation when its choices have ended: its tokens are remembered, its turn is stored,
// and what it came to is told.
#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/units.h"
#include "loci/serve/generation/generation.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::size_t kTokensRememberedHere = 16'384;
// How long it is tried again while the server stops.
constexpr Nanos kStorePatience = 3 * kNanosPerSecond;

}  // namespace

// Long sequences, and those of a tenant whose history is locked, are for a worker.
asio::awaitable<void> Generation::remember_tokens() {
  const std::string& tenant = sink_.origin().tenant->id;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::vector<TokenId>& prompt = prepared_.prompts[i / prepared_.fields.choices];
    const std::vector<TokenId>& reply = slots_[i].reply.tokens;
    const bool is_short = prompt.size() + reply.size() <= kTokensRememberedHere;
    if (is_short && services_.history.try_remember(tenant, prompt, reply)) continue;
    const auto job = [&] {
      services_.history.remember(tenant, prompt, reply);
      return true;
    };
    co_await services_.workers.run(tenant, job);
  }
}

asio::awaitable<void> Generation::commit() {
  choices_ = take_choices();
  if (!prepared_.commit) co_return;
  const Status status = co_await store_turn();
  if (status.ok()) co_return;
  if (sink_.gone()) {
    client_left_ = true;
    co_return;
  }
  failure_ = store_error(status);
  // (The access log has it of a request that is answered with the error.)
  if (streaming_) services_.log->warn("a turn could not be stored: {}", status.message());
}

asio::awaitable<Status> Generation::store_turn() {
  const auto job = [this] { return prepared_.commit(choices_, usage()); };
  const std::string& request = sink_.origin().request_id;
  std::optional<Nanos> waits_since, stops_since;
  for (;;) {
    Status status = co_await services_.store_thread.run(sink_.origin().tenant->id, job, AtStandstill::kWait);
    const Nanos now = services_.clock.now();
    if (services_.draining.load() && !stops_since) stops_since = now;
    const bool is_given_up = stops_since && now - *stops_since >= kStorePatience;
    const bool may_be_taken_later = status.code() == StatusCode::kUnavailable && !is_given_up;
    if (!may_be_taken_later || sink_.has_reader() || sink_.gone()) {
      if (waits_since)
        services_.log->warn("request {}: after {} its reply {} stored", request,
                            format_duration(now - *waits_since), status.ok() ? "was" : "could not be");
      co_return status;
    }
    if (!waits_since) {
      waits_since = now;
      waits_for_store_();
      services_.log->warn("request {}: its reply can't be stored, which is tried again: {}", request,
                          status.message());
    }
    asio::steady_timer pause(sink_.origin().io, kStorePause);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

std::uint64_t Generation::paid_tokens() const {
  const bool was_sent = streaming_ && first_token_at_.has_value();
  // What the client brought about costs what it came to, seen or not: else it would compute for nothing.
  // (A generation of several choices that has begun ends with 429 if another request took a choice's place in
  // the queue.)
  const bool is_others_fault = failure_ && (failure_->http_status >= 500 || failure_->http_status == 429);
  if (is_others_fault && (!was_sent || goes_on_elsewhere())) return 0;
  // What was refused, or waited in the queue until its client left, was computed nowhere, if at no other
  // member.
  if (!accepted_ && (failure_ || !prepared_.elsewhere)) return 0;
  const ReplyUsage total = usage();
  return total.prompt_tokens + total.completion_tokens;
}

ReplyUsage Generation::usage() const {
  ReplyUsage out;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    out.completion_tokens += slots_[i].completion_tokens;
    out.reasoning_tokens += slots_[i].choice.reasoning_tokens();
    // A prompt counts once, whatever the number of its choices.
    if (i % prepared_.fields.choices != 0) continue;
    const std::size_t prompt = i / prepared_.fields.choices;
    out.prompt_tokens += kept_tokens(prepared_, prompt);
    out.dropped_tokens += tokens_of(prepared_.dropped[prompt]);
    out.cached_tokens += slots_[i].cached_tokens;
  }
  out.explanation = explanation();
  return out;
}

ReplyExplanation Generation::explanation() const {
  ReplyExplanation out{.wanted = prepared_.fields.explain, .sources = {}, .queued = {}, .first_token = {}};
  for (std::size_t i = 0; i < slots_.size(); i += prepared_.fields.choices)
    add(out.sources, slots_[i].sources);
  if (slots_.empty() || !slots_.front().started_at) return out;
  const Slot& first = slots_.front();
  out.queued = *first.started_at - submitted_at_;
  if (first.first_token_at) out.first_token = *first.first_token_at - *first.started_at;
  return out;
}

GenerationSummary Generation::summary() const {
  GenerationSummary out{.usage = usage(),
                        .choices = slots_.size(),
                        .duration = ended_at_ - sink_.origin().received_at,
                        .client_left = client_left_ && !services_.stops_at_once.load(),
                        .cut_off = client_left_ && services_.stops_at_once.load(),
                        .model_asked = prepared_.fields.model,
                        .model = served_.model->id};
  for (const FinishedChoice& choice : choices_)
    out.finish_reasons.push_back(finish_reason_name(choice.finish));
  const Nanos received = sink_.origin().received_at;
  for (const Slot& slot : slots_) {
    if (slot.started_at) out.admitted = std::min(out.admitted.value_or(kNever), *slot.started_at - received);
    if (slot.last_token_at != 0)
      out.last_token = std::max(out.last_token.value_or(0), slot.last_token_at - received);
  }
  if (!choices_.empty()) out.finish_reason = finish_reason_name(choices_.front().finish);
  // Of what failed before its stream began the error itself is known.
  if (failure_ && streaming_) out.finish_reason = "failed";
  if (first_token_at_) out.first_token = *first_token_at_ - received;
  if (!prepared_.elsewhere) return out;
  out.prefill = prepared_.elsewhere->end;
  out.prefill_wait = prepared_.elsewhere->waited;
  for (const ComputedElsewhere::Prompt& prompt : prepared_.elsewhere->prompts) {
    if (prompt.early) out.prefill_early += prompt.early->now().tokens();
  }
  return out;
}

}  // namespace loci
