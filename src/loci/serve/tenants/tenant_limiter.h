// SPDX-License-Identifier: Apache-2.0
// Limits of all tenants: each request that computes or stores holds a ticket of its tenant, from its header
// to its end. A server of a cluster asks a pool that counts for all of them. While that does not answer, each
// server counts its own requests and allows its share of each limit.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/tenants/limit_pool.h"
#include "loci/serve/tenants/tenant_meter.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

class TenantLimiter;

// A request that was admitted. Move-only; dropping it ends it.
class TenantTicket {
 public:
  TenantTicket(TenantTicket&& other) noexcept;
  TenantTicket& operator=(TenantTicket&& other) noexcept;
  TenantTicket(const TenantTicket&) = delete;
  TenantTicket& operator=(const TenantTicket&) = delete;
  ~TenantTicket();
  // How many tokens its prompts and replies really had; 0 if this is never called.
  void set_used(std::uint64_t tokens) { used_ = tokens; }

 private:
  friend class TenantLimiter;
  TenantTicket(TenantLimiter* limiter, std::string tenant) : limiter_(limiter), tenant_(std::move(tenant)) {}
  enum class CountedBy : std::uint8_t { kServer, kPool };

  TenantLimiter* limiter_;  // null: moved from
  std::string tenant_;
  CountedBy request_by_ = CountedBy::kServer;
  CountedBy tokens_by_ = CountedBy::kServer;
  RateState state_;         // when it began
  bool was_moved_ = false;  // from a server which has ended, and had taken its tokens
  std::uint64_t taken_ = 0;
  std::uint64_t used_ = 0;
};

// Thread-safe; coroutines that wait for begin() or take_tokens() run on one thread. Outlives its tickets.
// Meters are never dropped: there are no more of them than tenants that have keys.
class TenantLimiter {
 public:
  explicit TenantLimiter(const Clock& clock) : clock_(clock) {}

  // From now on the pool counts tenants that have limits. It outlives the tickets.
  void count_with(LimitPool& pool) { pool_ = &pool; }

  struct Admission {
    std::variant<TenantTicket, ApiError> result;  // the error: 429
    HttpHeaders headers;                          // x-ratelimit-..., of the limits that there are
  };
  // Admits a request by its header, before anything is spent on it. Waits for the pool, if there is one, a
  // little over two seconds at most: it asks a second time where one of the tenant's requests may have ended
  // elsewhere.
  //
  // Moved: a server which has ended had admitted the request, so it is counted and not refused. Its tokens
  // were taken there; take_tokens() takes none, and what it uses here is counted at its end.
  enum class Origin : std::uint8_t { kClient, kMoved };
  boost::asio::awaitable<Admission> begin(const Tenant& tenant, Origin origin = Origin::kClient);

  struct Refusal {
    std::optional<ApiError> error;  // 429; none: the tokens were taken
    HttpHeaders headers;            // as Admission's
  };
  // `tokens`: that prompts and replies may come to; `prompt_tokens`: those of the prompts. Waits for the
  // pool, if there is one, a second at most.
  boost::asio::awaitable<Refusal> take_tokens(TenantTicket& ticket, const Tenant& tenant,
                                              std::uint64_t prompt_tokens, std::uint64_t tokens);

 private:
  friend class TenantTicket;
  // Absent: this server counts.
  boost::asio::awaitable<std::optional<LimitAnswer>> ask(LimitAsk ask, std::function<void()> give_back);
  LimitAnswer begin_here(const Tenant& tenant, Origin origin);
  LimitAnswer take_here(const Tenant& tenant, std::uint64_t prompt_tokens, std::uint64_t tokens,
                        std::uint64_t& taken);
  // What this server allows by itself.
  TenantLimits own_limits(const Tenant& tenant) const;
  void end(const TenantTicket& ticket);

  const Clock& clock_;
  std::atomic<LimitPool*> pool_{nullptr};  // null: this server counts alone
  Mutex mutex_;
  std::map<std::string, TenantMeter> meters_ GUARDED_BY(mutex_);
};

// "1s", "6m0s", "120ms": how OpenAI's headers write a time.
std::string ratelimit_duration(Nanos time);

}  // namespace loci
