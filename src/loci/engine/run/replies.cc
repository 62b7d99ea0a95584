// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/replies.h"

#include <variant>

#include "loci/base/check.h"

namespace loci {
namespace {

// What a lost device makes of a request's end.
bool lost_with_device(FinishReason reason) {
  return reason == FinishReason::kDeadline || reason == FinishReason::kFailed;
}

}  // namespace

void Replies::begin(Submission& submission) {
  const Arrival& arrival = submission.arrival;
  std::size_t prompt = arrival.prompt.size();
  for (const TokenRange& range : arrival.dropped) prompt -= range.end - range.begin;
  prompt -= submission.said_tokens;
  const std::uint32_t forced = submission.sampler->forced_tokens();
  active_.emplace(arrival.request,
                  Active{std::move(submission.sampler),
                         std::make_shared<GenerationListener>(std::move(submission.listener)),
                         static_cast<std::uint32_t>(prompt), submission.tells_computed,
                         submission.repeats_prompt, forced});
}

PassJob Replies::make_job(Plan& plan) {
  PassJob job;
  job.samplers.resize(plan.spans.size());
  for (const SpanPlan& span : plan.spans) job.requests.push_back(span.request);
  for (std::size_t i = 0; i < plan.spans.size(); ++i) {
    if (!plan.spans[i].sample) continue;
    const Active& active = active_.at(plan.spans[i].request);
    Span& span = plan.pass->spans[i];
    if (device_samples_ && active.sampler->on_device()) {
      // The place in the reply is the number of the draw, whatever was suspended or poisoned before.
      span.sampling =
          active.sampler->device_sampling(span.position + span.tokens.size() - active.prompt_tokens);
    } else {
      job.samplers[i] = active.sampler;
    }
  }
  std::vector<FlyingSpan> flying;
  flying.reserve(plan.spans.size());
  for (std::size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.pass->spans[i];
    flying.push_back({plan.spans[i], span.position + static_cast<std::uint32_t>(span.tokens.size())});
  }
  job.pass = std::move(*plan.pass);
  job.ahead = !flying_spans_.empty();
  flying_spans_.push_back(std::move(flying));
  return job;
}

void Replies::end_pass(std::vector<std::optional<Sampled>> sampled) {
  last_spans_ = std::move(flying_spans_.front());
  flying_spans_.pop_front();
  last_sampled_ = std::move(sampled);
  told_spans_ = 0;
  for (const FlyingSpan& span : last_spans_) tell_computed(span);
}

// (A pass whose loads failed says too much: the core computes those tokens again.)
void Replies::tell_computed(const FlyingSpan& span) {
  const auto found = active_.find(span.plan.request);
  if (found == active_.end() || !found->second.tells_computed || span.plan.sample) return;
  deliveries_.push_back({found->second.listener, PromptComputed{.tokens = span.end}});
}

void Replies::lose_device(Status why) {
  if (lost_.ok()) lost_ = std::move(why);
}

void Replies::tell(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) std::visit([this](const auto& one) { tell_one(one); }, output);
}

void Replies::count(const Active& active, ContextSources sources) {
  if (!active.repeats_prompt) {
    scored_tokens_ += active.forced_tokens;
    return;
  }
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    repeated_from_[tier] += sources.of(static_cast<Tier>(tier));
  for (std::size_t i = 0; i < kMissReasons; ++i) repeated_computed_[i] += sources.computed[i];
}

void Replies::correct(CoreStats& stats) const {
  std::uint64_t cached = 0, computed = 0;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    stats.tokens_from_total[tier] -= repeated_from_[tier];
    cached += repeated_from_[tier];
  }
  for (std::size_t i = 0; i < kMissReasons; ++i) {
    stats.tokens_missed_total[i] -= repeated_computed_[i];
    computed += repeated_computed_[i];
  }
  stats.tokens_missed_total[static_cast<std::size_t>(MissReason::kNeverSeen)] += scored_tokens_;
  stats.tokens_cached_total -= cached;
  stats.tokens_prompt_total += scored_tokens_ - cached - computed;
  stats.tokens_generated_total -= sampled_scored_tokens_;
}

void Replies::tell_one(const Started& started) {
  const Active& active = active_.at(started.request);
  begun_.push_back(active.sampler);
  deliveries_.push_back({active.listener, GenerationStarted{.cached_tokens = started.cached_tokens,
                                                            .sources = started.sources}});
}

void Replies::tell_one(const Restored& restored) {
  const Active& active = active_.at(restored.request);
  count(active, restored.sources);  // the core's totals have the prompt from now on
  deliveries_.push_back({active.listener, GenerationRestored{.sources = restored.sources}});
}

// The core names the token; its log-probabilities came with the pass.
void Replies::tell_one(const TokenSampled& token) {
  GeneratedToken event{.token = token.token};
  // Tokens come in the order of the spans.
  const std::size_t spans = last_spans_.size();
  for (std::size_t tried = 0; tried < spans; ++tried) {
    const std::size_t i = (told_spans_ + tried) % spans;
    if (last_spans_[i].plan.request != token.request || !last_spans_[i].plan.sample) continue;
    told_spans_ = i + 1;
    if (last_sampled_[i]) event = std::move(*std::exchange(last_sampled_[i], std::nullopt));
    break;
  }
  LOCI_CHECK(event.token == token.token, "the core speaks of the token that was sampled");
  Active& active = active_.at(token.request);
  if (active.forced_tokens > 0) {
    --active.forced_tokens;
    ++sampled_scored_tokens_;
  }
  deliveries_.push_back({active.listener, std::move(event)});
}

void Replies::tell_one(const Finished& finished) {
  GenerationEnded ended{.reason = finished.reason, .usage = finished.usage};
  if (!lost_.ok() && lost_with_device(finished.reason)) {
    ended.status = lost_;
    ended.reason = FinishReason::kFailed;
  }
  if (finished.reason == FinishReason::kGrammar)
    ended.status = active_.at(finished.request).sampler->grammar_status();
  end(finished.request, std::move(ended));
}

void Replies::tell_one(const Rejected& rejected) {
  GenerationEnded ended{.status = rejected.status, .retry_after = rejected.retry_after};
  if (!lost_.ok() && rejected.status.code() == StatusCode::kUnavailable) ended.status = lost_;
  end(rejected.request, std::move(ended));
}

void Replies::end(RequestId request, GenerationEnded ended) {
  const auto found = active_.find(request);
  LOCI_CHECK(found != active_.end(), "a request ends once");
  deliveries_.push_back({std::move(found->second.listener), std::move(ended)});
  active_.erase(found);
}

}  // namespace loci
