// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/tenant_limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <utility>

namespace loci {
namespace asio = boost::asio;
namespace {

bool has_limits(const TenantLimits& limits) {
  return limits.requests_per_minute || limits.tokens_per_minute || limits.concurrent_requests;
}

asio::awaitable<void> pause(std::chrono::nanoseconds time) {
  asio::steady_timer over(co_await asio::this_coro::executor, time);
  boost::system::error_code ignored;
  co_await over.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// An answer that a coroutine waits for. All of it is the coroutine's thread's.
struct Waiting {
  explicit Waiting(const asio::any_io_executor& executor)
      : over(executor, std::chrono::nanoseconds(kLimitPatience)) {}
  asio::steady_timer over;
  std::optional<LimitAnswer> answer;
  bool is_left = false;  // nobody waits any more
};

class Waiter {
 public:
  explicit Waiter(std::shared_ptr<Waiting> waiting) : waiting_(std::move(waiting)) {}
  ~Waiter() { waiting_->is_left = true; }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  std::shared_ptr<Waiting> waiting_;
};

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
      request_by_(other.request_by_),
      tokens_by_(other.tokens_by_),
      state_(other.state_),
      was_moved_(other.was_moved_),
      taken_(other.taken_),
      used_(other.used_) {}

TenantTicket::~TenantTicket() {
  if (limiter_ != nullptr) limiter_->end(*this);
}

TenantTicket& TenantTicket::operator=(TenantTicket&& other) noexcept {
  std::swap(limiter_, other.limiter_);
  std::swap(tenant_, other.tenant_);
  std::swap(request_by_, other.request_by_);
  std::swap(tokens_by_, other.tokens_by_);
  std::swap(state_, other.state_);
  std::swap(was_moved_, other.was_moved_);
  std::swap(taken_, other.taken_);
  std::swap(used_, other.used_);
  return *this;
}

asio::awaitable<std::optional<LimitAnswer>> TenantLimiter::ask(LimitAsk ask,
                                                               std::function<void()> give_back) {
  LimitPool* pool = pool_.load();
  if (pool == nullptr) co_return std::nullopt;
  const auto waiting = std::make_shared<Waiting>(co_await asio::this_coro::executor);
  const Waiter waiter(waiting);
  pool->ask(std::move(ask), [waiting, give_back = std::move(give_back)](std::optional<LimitAnswer> answer) {
    asio::post(waiting->over.get_executor(), [waiting, give_back, answer] {
      if (waiting->is_left && answer && !answer->reached) give_back();
      waiting->answer = answer;
      waiting->over.cancel();
    });
  });
  boost::system::error_code ignored;
  co_await waiting->over.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  co_return waiting->answer;
}

TenantLimits TenantLimiter::own_limits(const Tenant& tenant) const {
  const LimitPool* pool = pool_.load();
  TenantLimits limits = tenant.limits;
  if (pool == nullptr) return limits;
  const std::uint32_t servers = std::max(pool->servers(), 1u);
  for (auto* limit : {&limits.requests_per_minute, &limits.tokens_per_minute, &limits.concurrent_requests}) {
    if (*limit) *limit = std::max(**limit / servers, 1u);
  }
  return limits;
}

LimitAnswer TenantLimiter::begin_here(const Tenant& tenant, Origin origin) {
  const Nanos now = clock_.now();
  const TenantLimits limits = own_limits(tenant);
  const MutexLock lock(mutex_);
  TenantMeter& meter = meters_[tenant.id];
  std::optional<LimitReached> reached;
  if (origin == Origin::kMoved)
    meter.begin_again(limits, now);
  else
    reached = meter.begin(limits, now);
  return {.reached = reached, .state = meter.state(limits, now)};
}

asio::awaitable<TenantLimiter::Admission> TenantLimiter::begin(const Tenant& tenant, Origin origin) {
  std::optional<LimitAnswer> pooled;
  if (pool_.load() != nullptr && has_limits(tenant.limits)) {
    LimitAsk wish{.tenant = tenant.id, .limits = tenant.limits, .tokens = std::nullopt};
    if (origin == Origin::kMoved) wish.attempt = LimitAsk::Attempt::kMoved;
    const std::function<void()> give_back = [this, id = tenant.id] { pool_.load()->end(id); };
    pooled = co_await ask(wish, give_back);
    // The tenant's last request may have ended elsewhere just now, which the pool hears within that time if
    // it is well.
    if (pooled && pooled->reached && pooled->reached->kind == LimitReached::Kind::kConcurrent) {
      co_await pause(std::chrono::nanoseconds(kPlaceRefusalKept));
      wish.attempt = LimitAsk::Attempt::kAgain;
      // (Without an answer the refusal stands: a tenant whose row is always counted gets no request more.)
      if (std::optional<LimitAnswer> again = co_await ask(wish, give_back)) pooled = std::move(again);
    }
  }
  const LimitAnswer answer = pooled ? *pooled : begin_here(tenant, origin);
  Admission out{.result = TenantTicket(nullptr, tenant.id), .headers = headers_of(answer.state)};
  if (answer.reached) {
    out.result = error_of(*answer.reached);
    co_return out;
  }
  auto& ticket = std::get<TenantTicket>(out.result);
  ticket.limiter_ = this;
  ticket.request_by_ = pooled ? TenantTicket::CountedBy::kPool : TenantTicket::CountedBy::kServer;
  ticket.state_ = answer.state;
  ticket.was_moved_ = origin == Origin::kMoved;
  co_return out;
}

LimitAnswer TenantLimiter::take_here(const Tenant& tenant, std::uint64_t prompt_tokens, std::uint64_t tokens,
                                     std::uint64_t& taken) {
  const Nanos now = clock_.now();
  const TenantLimits limits = own_limits(tenant);
  // A prompt that the whole limit allows is let through by a share of it, and what is beyond is owed.
  if (limits.tokens_per_minute)
    prompt_tokens = std::min<std::uint64_t>(prompt_tokens, *limits.tokens_per_minute - 1);
  taken = TenantMeter::tokens_taken(limits, tokens);
  const MutexLock lock(mutex_);
  TenantMeter& meter = meters_[tenant.id];
  auto reached = meter.take_tokens(limits, prompt_tokens, tokens, now);
  return {.reached = reached, .state = meter.state(limits, now)};
}

asio::awaitable<TenantLimiter::Refusal> TenantLimiter::take_tokens(TenantTicket& ticket, const Tenant& tenant,
                                                                   std::uint64_t prompt_tokens,
                                                                   std::uint64_t tokens) {
  if (const auto too_large = TenantMeter::check_size(tenant.limits, prompt_tokens))
    co_return Refusal{.error = error_of(*too_large), .headers = headers_of(ticket.state_)};
  if (!tenant.limits.tokens_per_minute)
    co_return Refusal{.error = std::nullopt, .headers = headers_of(ticket.state_)};
  if (ticket.was_moved_) {
    ticket.tokens_by_ =
        pool_.load() != nullptr ? TenantTicket::CountedBy::kPool : TenantTicket::CountedBy::kServer;
    co_return Refusal{.error = std::nullopt, .headers = headers_of(ticket.state_)};
  }
  std::uint64_t taken = TenantMeter::tokens_taken(tenant.limits, tokens);
  std::optional<LimitAnswer> pooled;
  if (pool_.load() != nullptr) {
    const LimitAsk wish{.tenant = tenant.id,
                        .limits = tenant.limits,
                        .tokens = LimitAsk::Tokens{.prompt = prompt_tokens, .all = tokens}};
    const std::function<void()> give_back = [this, id = tenant.id, taken] {
      pool_.load()->settle(id, taken, 0);
    };
    pooled = co_await ask(wish, give_back);
  }
  const LimitAnswer answer = pooled ? *pooled : take_here(tenant, prompt_tokens, tokens, taken);
  HttpHeaders headers = headers_of(answer.state);
  if (answer.reached) co_return Refusal{.error = error_of(*answer.reached), .headers = std::move(headers)};
  ticket.taken_ = taken;
  ticket.tokens_by_ = pooled ? TenantTicket::CountedBy::kPool : TenantTicket::CountedBy::kServer;
  co_return Refusal{.error = std::nullopt, .headers = std::move(headers)};
}

void TenantLimiter::end(const TenantTicket& ticket) {
  using CountedBy = TenantTicket::CountedBy;
  LimitPool* pool = pool_.load();
  // Without a limit nothing was taken.
  const std::uint64_t used = ticket.taken_ == 0 && !ticket.was_moved_ ? 0 : ticket.used_;
  if (ticket.request_by_ == CountedBy::kPool) pool->end(ticket.tenant_);
  if (ticket.tokens_by_ == CountedBy::kPool) pool->settle(ticket.tenant_, ticket.taken_, used);
  const Nanos now = clock_.now();
  const MutexLock lock(mutex_);
  TenantMeter& meter = meters_[ticket.tenant_];
  if (ticket.request_by_ == CountedBy::kServer) meter.end();
  if (ticket.tokens_by_ == CountedBy::kServer) meter.settle(ticket.taken_, used, now);
}

std::string ratelimit_duration(Nanos time) {
  const Nanos millis = (time + kNanosPerMilli - 1) / kNanosPerMilli;
  if (millis < 1000) return fmt::format("{}ms", millis);
  const Nanos seconds = (millis + 999) / 1000;
  return seconds < 60 ? fmt::format("{}s", seconds) : fmt::format("{}m{}s", seconds / 60, seconds % 60);
}

}  // namespace loci
