// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/tenant_meter.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr Nanos kMinute = 60 * kNanosPerSecond;
// A bucket that is restored lacks no more than this time brings: a week.
constexpr std::int64_t kMissingMillisMax = std::int64_t{7} * 24 * 3'600 * 1'000;
// How soon to come again where a request has to end first.
constexpr Nanos kWaitForAnEnd = kNanosPerSecond;

}  // namespace

void RateBucket::set_limit(std::uint32_t per_minute, Nanos now) {
  if (begun_ && per_minute == limit_) return;
  fill(now);
  level_ += (Level{per_minute} - limit_) * kMinute;
  limit_ = per_minute;
  at_ = begun_ ? at_ : now;
  begun_ = true;
}

void RateBucket::fill(Nanos now) {
  if (!begun_ || now <= at_) return;
  level_ = std::min<Level>(level_ + Level{limit_} * (now - at_), Level{limit_} * kMinute);
  at_ = now;
}

std::int64_t RateBucket::available(Nanos now) {
  fill(now);
  const Level whole = level_ >= 0 ? level_ / kMinute : -((-level_ + kMinute - 1) / kMinute);
  return static_cast<std::int64_t>(whole);
}

Nanos RateBucket::wait_for(std::uint64_t amount, Nanos now) {
  fill(now);
  LOCI_CHECK(limit_ > 0 && amount <= limit_, "a bucket holds a minute's worth");
  const Level missing = Level{amount} * kMinute - level_;
  return missing <= 0 ? 0 : static_cast<Nanos>((missing + limit_ - 1) / limit_);
}

void RateBucket::take(std::uint64_t amount, Nanos now) {
  fill(now);
  level_ -= Level{amount} * kMinute;
}

void RateBucket::give_back(std::uint64_t amount, Nanos now) {
  fill(now);
  level_ = std::min<Level>(level_ + Level{amount} * kMinute, Level{limit_} * kMinute);
}

std::int64_t RateBucket::missing(Nanos now) {
  fill(now);
  const Level nanos = Level{limit_} * kMinute - level_;
  return static_cast<std::int64_t>(
      std::clamp<Level>((nanos + kNanosPerMilli - 1) / kNanosPerMilli, 0, INT64_MAX));
}

RateBucket RateBucket::with_missing(std::uint32_t per_minute, std::int64_t missing, Nanos at) {
  RateBucket bucket;
  bucket.set_limit(per_minute, at);
  missing = std::clamp<std::int64_t>(missing, 0, std::int64_t{per_minute} * kMissingMillisMax);
  bucket.level_ = Level{per_minute} * kMinute - Level{missing} * kNanosPerMilli;
  return bucket;
}

TenantMeter::TenantMeter(const TenantLimits& limits, const TenantUse& use, Nanos now)
    : running_(use.running) {
  const Nanos at = std::min(use.at, now);
  if (limits.requests_per_minute)
    requests_ = RateBucket::with_missing(*limits.requests_per_minute, use.requests_missing, at);
  if (limits.tokens_per_minute)
    tokens_ = RateBucket::with_missing(*limits.tokens_per_minute, use.tokens_missing, at);
}

TenantUse TenantMeter::use(Nanos now) {
  return {.requests_missing = requests_ ? requests_->missing(now) : 0,
          .tokens_missing = tokens_ ? tokens_->missing(now) : 0,
          .at = now,
          .running = running_};
}

void TenantMeter::apply(const TenantLimits& limits, Nanos now) {
  const auto set = [now](std::optional<RateBucket>& bucket, const std::optional<std::uint32_t>& limit) {
    if (!limit) {
      bucket.reset();
    } else {
      if (!bucket) bucket.emplace();
      bucket->set_limit(*limit, now);
    }
  };
  set(requests_, limits.requests_per_minute);
  set(tokens_, limits.tokens_per_minute);
}

std::uint64_t TenantMeter::tokens_taken(const TenantLimits& limits, std::uint64_t tokens) {
  return limits.tokens_per_minute ? std::min<std::uint64_t>(tokens, *limits.tokens_per_minute) : tokens;
}

std::optional<LimitReached> TenantMeter::check_size(const TenantLimits& limits, std::uint64_t prompt_tokens) {
  if (!limits.tokens_per_minute || prompt_tokens < *limits.tokens_per_minute) return std::nullopt;
  return LimitReached{LimitReached::Kind::kTooLarge, *limits.tokens_per_minute, prompt_tokens, 0};
}

std::optional<LimitReached> TenantMeter::begin(const TenantLimits& limits, Nanos now) {
  using Kind = LimitReached::Kind;
  apply(limits, now);
  if (limits.concurrent_requests && running_ >= *limits.concurrent_requests) {
    return LimitReached{Kind::kConcurrent, *limits.concurrent_requests, running_, kWaitForAnEnd};
  }
  // Every request takes a token at least.
  const Nanos for_tokens = tokens_ ? tokens_->wait_for(1, now) : 0;
  const Nanos for_requests = requests_ ? requests_->wait_for(1, now) : 0;
  if (for_requests > 0) {
    return LimitReached{Kind::kRequests, requests_->limit(), 1, std::max(for_requests, for_tokens)};
  }
  if (for_tokens > 0) return LimitReached{Kind::kTokens, tokens_->limit(), 1, for_tokens};
  begin_again(limits, now);
  return std::nullopt;
}

void TenantMeter::begin_again(const TenantLimits& limits, Nanos now) {
  apply(limits, now);
  if (requests_) requests_->take(1, now);
  ++running_;
}

std::optional<LimitReached> TenantMeter::take_tokens(const TenantLimits& limits, std::uint64_t prompt_tokens,
                                                     std::uint64_t tokens, Nanos now) {
  using Kind = LimitReached::Kind;
  apply(limits, now);
  if (!tokens_) return std::nullopt;
  const std::uint64_t taken = tokens_taken(limits, tokens);
  if (auto too_large = check_size(limits, prompt_tokens)) return too_large;
  const Nanos wait = tokens_->wait_for(taken, now);
  if (wait > 0) return LimitReached{Kind::kTokens, tokens_->limit(), taken, wait};
  tokens_->take(taken, now);
  return std::nullopt;
}

void TenantMeter::end() {
  LOCI_CHECK(running_ > 0, "only what has begun ends");
  --running_;
}

void TenantMeter::settle(std::uint64_t taken, std::uint64_t used, Nanos now) {
  if (!tokens_) return;
  if (used < taken)
    tokens_->give_back(taken - used, now);
  else
    tokens_->take(used - taken, now);
}

RateState TenantMeter::state(const TenantLimits& limits, Nanos now) {
  apply(limits, now);
  const auto rate = [now](RateBucket& bucket) {
    return RateState::Rate{
        .limit = bucket.limit(),
        .remaining = static_cast<std::uint32_t>(std::max<std::int64_t>(bucket.available(now), 0)),
        .reset = bucket.wait_until_full(now)};
  };
  RateState out;
  if (requests_) out.requests = rate(*requests_);
  if (tokens_) out.tokens = rate(*tokens_);
  return out;
}

}  // namespace loci
