// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/tenant_limiter.h"

#include <fmt/format.h>

#include <utility>

namespace loci {
namespace {

std::string describe(const LimitReached& reached) {
  using Kind = LimitReached::Kind;
  switch (reached.kind) {
    case Kind::kRequests: return fmt::format("the limit is {} requests per minute", reached.limit);
    case Kind::kTokens:
      return fmt::format(
          "the limit is {} tokens per minute; this request may take {} (its prompt and max_tokens)",
          reached.limit, reached.found);
    case Kind::kConcurrent: return fmt::format("the limit is {} requests at once", reached.limit);
    case Kind::kTooLarge:
      return fmt::format("the limit is {} tokens per minute; the prompt alone has {}", reached.limit,
                         reached.found);
  }
  return {};
}

ApiError error_of(const LimitReached& reached) {
  ApiError error =
      api_error(resource_exhausted("rate limit reached: " + describe(reached)), reached.retry_after);
  error.code = "rate_limit_exceeded";
  // Coming again would not help.
  if (reached.kind == LimitReached::Kind::kTooLarge) error.retry_after_seconds.reset();
  return error;
}

void add_rate(const std::optional<RateState::Rate>& rate, std::string_view what, HttpHeaders& headers) {
  if (!rate) return;
  headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what), std::to_string(rate->limit));
  headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what), std::to_string(rate->remaining));
  headers.emplace_back(fmt::format("x-ratelimit-reset-{}", what), ratelimit_duration(rate->reset));
}

HttpHeaders headers_of(const RateState& state) {
  HttpHeaders headers;
  add_rate(state.requests, "requests", headers);
  add_rate(state.tokens, "tokens", headers);
  return headers;
}

}  // namespace

TenantTicket::TenantTicket(TenantTicket&& other) noexcept
    : limiter_(std::exchange(other.limiter_, nullptr)),
      tenant_(std::move(other.tenant_)),
      taken_(other.taken_),
      used_(other.used_) {}

TenantTicket::~TenantTicket() {
  if (limiter_ != nullptr) limiter_->end(*this);
}

TenantTicket& TenantTicket::operator=(TenantTicket&& other) noexcept {
  std::swap(limiter_, other.limiter_);
  std::swap(tenant_, other.tenant_);
  std::swap(taken_, other.taken_);
  std::swap(used_, other.used_);
  return *this;
}

TenantLimiter::Admission TenantLimiter::begin(const Tenant& tenant) {
  const Nanos now = clock_.now();
  std::optional<LimitReached> reached;
  RateState state;
  {
    const MutexLock lock(mutex_);
    TenantMeter& meter = meters_[tenant.id];
    reached = meter.begin(tenant.limits, now);
    state = meter.state(tenant.limits, now);
  }
  if (reached) return {.result = error_of(*reached), .headers = headers_of(state)};
  return {.result = TenantTicket(this, tenant.id), .headers = headers_of(state)};
}

TenantLimiter::Refusal TenantLimiter::take_tokens(TenantTicket& ticket, const Tenant& tenant,
                                                  std::uint64_t prompt_tokens, std::uint64_t tokens) {
  const Nanos now = clock_.now();
  std::optional<LimitReached> reached;
  RateState state;
  {
    const MutexLock lock(mutex_);
    TenantMeter& meter = meters_[tenant.id];
    reached = meter.take_tokens(tenant.limits, prompt_tokens, tokens, now);
    state = meter.state(tenant.limits, now);
  }
  if (reached) return {.error = error_of(*reached), .headers = headers_of(state)};
  ticket.taken_ = TenantMeter::tokens_taken(tenant.limits, tokens);
  return {.error = std::nullopt, .headers = headers_of(state)};
}

void TenantLimiter::end(const TenantTicket& ticket) {
  const MutexLock lock(mutex_);
  meters_.at(ticket.tenant_).end(ticket.taken_, ticket.used_, clock_.now());
}

std::string ratelimit_duration(Nanos time) {
  const Nanos millis = (time + kNanosPerMilli - 1) / kNanosPerMilli;
  if (millis < 1000) return fmt::format("{}ms", millis);
  const Nanos seconds = (millis + 999) / 1000;
  return seconds < 60 ? fmt::format("{}s", seconds) : fmt::format("{}m{}s", seconds / 60, seconds % 60);
}

}  // namespace loci
