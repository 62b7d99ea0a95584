// SPDX-License-Identifier: Apache-2.0
// What a pass has brought, and how requests end.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

void Core::State::commit(const PassDone& done, Plan& plan) {
  CorePass pass = flights_.take_first(done.pass, done.spans.size());
  // One whose spans were given up took less than computing them does.
  const bool is_whole = std::ranges::all_of(done.spans, [](const SpanOutcome& span) { return span.ok; });
  pass_times_.end({.projected = done.projected, .layers = config_.layers, .is_whole = is_whole}, now_);

  read_ahead(pass);
  for (const CoreCopy& copy : pass.copies) tables_.fill(*copy.request, copy.target, pass);
  pass.copies.clear();  // and with it the pins on the sources
  std::vector<std::pair<CoreRequest*, const SpanOutcome*>> samples;
  samples.reserve(pass.spans.size());
  flights_.judge(pass, done.spans);
  for (std::size_t i = 0; i < pass.spans.size(); ++i) {
    const CoreSpan& span = pass.spans[i];
    if (!span.counts) continue;
    for (std::size_t p = 0; p < span.piece_count; ++p)
      tables_.fill(*span.request, pass.pieces[span.first_piece + p], pass);
    const std::uint32_t not_found = PromptSources::computed(*span.request, span.position, span.count);
    if (not_found > 0) charge(*span.request, not_found);
    if (!span.sample) continue;
    const SpanOutcome& outcome = done.spans[i];
    LOCI_CHECK(outcome.sample.has_value() || outcome.end != GrammarEnd::kGoesOn, "a sample was asked for");
    if (!span.request->phase.is(RequestPhase::kEnding)) samples.emplace_back(span.request, &outcome);
  }
  end_flight(pass);

  for (CoreRequest* request : pass.requests) {
    Flights::leave(*request);
    if (request->passes->in_flight == 0 && tables_.release_next(*request)) room_.changed();
    if (request->phase.is(RequestPhase::kEnding)) {
      end(*request, request->end_reason, plan);
    } else if (request->passes->poisoned >= kPoisonedPassesMax) {
      end(*request, FinishReason::kFailed, plan);
    }
  }
  plan.outputs.reserve(plan.outputs.size() + samples.size());
  for (const auto& [request, outcome] : samples) take_sample(*request, *outcome, plan);
}

// Events since the pass began have looked at other requests and blocks: without it each span waits for
// memory.
void Core::State::read_ahead(const CorePass& pass) const {
  for (const CorePiece& piece : pass.pieces) index_.prefetch(piece.block);
  for (const CoreRequest* request : pass.requests) request->prefetch();
}

// The pass lets go of what it kept.
void Core::State::end_flight(CorePass& pass) {
  const Flights::Returned returned = flights_.end(pass);
  for (const auto& [id, group] : returned.lent) {
    if (const auto owner = requests_.find(id); owner != requests_.end())
      windows_.end_lending(*owner->second, group);
  }
  if (returned.any) room_.changed();
}

void Core::State::take_sample(CoreRequest& request, const SpanOutcome& outcome, Plan& plan) {
  settle_sources(request, plan);
  if (request.is_public) {  // the prompt's state is there, and that is all
    keep_public(request);
    return end(request, FinishReason::kStop, plan);
  }
  if (outcome.end == GrammarEnd::kFailed) return end(request, FinishReason::kGrammar, plan);
  if (!outcome.sample) return end(request, FinishReason::kStop, plan);
  const TokenId token = *outcome.sample;
  request.tokens.push_back(token);
  request.phase.settle(RequestPhase::kDecode);
  ++totals_.tokens_generated_total;
  charge(request, 1);
  plan.outputs.emplace_back(TokenSampled{request.id, token});
  const bool stops = request.new_tokens() >= request.min_new_tokens &&
                     std::binary_search(request.stop_tokens.begin(), request.stop_tokens.end(), token);
  if (stops || outcome.end == GrammarEnd::kComplete) {
    end(request, FinishReason::kStop, plan);
  } else if (request.new_tokens() >= request.max_new_tokens ||
             request.length() >= windows_.sequence_tokens_max()) {
    end(request, FinishReason::kLength, plan);
  } else if (config_.passes_ahead > 0 && request.has_grown()) {
    tables_.open_next(request);
  }
}

void Core::State::end_when_free(CoreRequest& request, FinishReason reason, Plan& plan) {
  if (request.phase.is(RequestPhase::kEnding)) return;
  if (request.passes->in_flight == 0) {
    end(request, reason, plan);
    return;
  }
  request.phase.become(RequestPhase::kEnding);
  request.end_reason = reason;
  deadlines_.drop(request);
}

// It leaves the batch. What its blocks hold stays in the index.
void Core::State::stop_running(CoreRequest& request) {
  tables_.let_go(request);
  queue_.end_running(request.tenant);
  batch_.leave(request);
  room_.changed();
}

void Core::State::end(CoreRequest& request, FinishReason reason, Plan& plan) {
  if (request.runs()) {
    tables_.wish_save_tail(request);
    std::vector<BlockId> own;
    if (!config_.reuse) {
      for (const BlockPin& pin : request.blocks) own.push_back(pin.block());
    }
    stop_running(request);
    // Nobody will ever find it. (What a pass in flight still has stays, and is evicted.)
    for (auto block = own.rbegin(); block != own.rend(); ++block) index_.forget(*block);
  } else if (request.before_queue->until) {
    before_queue_.leave(request);
  } else if (request.waits()) {
    leave_queue(request);
    room_.changed();
  }
  if (request.paused) --paused_;
  deadlines_.drop(request);
  settle_sources(request, plan);
  const std::uint32_t cached = request.sources->found.sum.cached();
  plan.outputs.emplace_back(Finished{
      request.id, reason, Usage{request.prompt_tokens, cached, request.new_tokens(), request.suspensions}});
  queue_rate_.ended(now_, !queue_.empty());
  requests_.erase(request.id);
}

}  // namespace loci
