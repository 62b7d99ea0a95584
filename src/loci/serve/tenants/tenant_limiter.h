// SPDX-License-Identifier: Apache-2.0
// Limits of all tenants: each request that computes or stores holds a ticket of its tenant, from its header
// to its end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/serve/http/http_message.h"
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
  TenantLimiter* limiter_;  // null: moved from
  std::string tenant_;
  std::uint64_t taken_ = 0;
  std::uint64_t used_ = 0;
};

// Thread-safe. Outlives its tickets. Meters are never dropped: there are no more of them than tenants that
// have keys.
class TenantLimiter {
 public:
  explicit TenantLimiter(const Clock& clock) : clock_(clock) {}

  struct Admission {
    std::variant<TenantTicket, ApiError> result;  // the error: 429
    HttpHeaders headers;                          // x-ratelimit-..., of the limits that there are
  };
  // Admits a request by its header, before anything is spent on it.
  Admission begin(const Tenant& tenant);

  struct Refusal {
    std::optional<ApiError> error;  // 429; none: the tokens were taken
    HttpHeaders headers;            // as Admission's
  };
  // `tokens`: that prompts and replies may come to; `prompt_tokens`: those of the prompts.
  Refusal take_tokens(TenantTicket& ticket, const Tenant& tenant, std::uint64_t prompt_tokens,
                      std::uint64_t tokens);

 private:
  friend class TenantTicket;
  void end(const TenantTicket& ticket);

  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, TenantMeter> meters_ GUARDED_BY(mutex_);
};

// "1s", "6m0s", "120ms": how OpenAI's headers write a time.
std::string ratelimit_duration(Nanos time);

}  // namespace loci
