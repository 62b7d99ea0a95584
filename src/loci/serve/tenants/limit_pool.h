// SPDX-License-Identifier: Apache-2.0
// Counts what tenants use of their limits for several servers together (docs/decisions/cluster-limits.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "loci/base/clock.h"
#include "loci/serve/tenants/tenant.h"
#include "loci/serve/tenants/tenant_meter.h"

namespace loci {

// A request begins, or one that has begun takes tokens; see TenantMeter.
struct LimitAsk {
  struct Tokens {
    std::uint64_t prompt = 0;
    std::uint64_t all = 0;  // of prompts and replies together
  };
  std::string tenant;
  TenantLimits limits;
  std::optional<Tokens> tokens;  // absent: a request begins
  // For a request that begins. kAgain: it was refused, and waits for what has happened since. kMoved: a
  // server which has ended had admitted it (TenantMeter::begin_again()).
  enum class Attempt : std::uint8_t { kFirst, kAgain, kMoved };
  Attempt attempt = Attempt::kFirst;
};

struct LimitAnswer {
  std::optional<LimitReached> reached;  // absent: it was counted
  RateState state;
};

// Nobody waits longer for an answer.
inline constexpr Nanos kLimitPatience = kNanosPerSecond;
// A pool may answer requests that begin with a refusal that is so old: of rates, and of requests at once.
inline constexpr Nanos kRefusalKept = 100 * kNanosPerMilli;
inline constexpr Nanos kPlaceRefusalKept = 50 * kNanosPerMilli;

// Thread-safe. Nothing waits; outlives who asks.
class LimitPool {
 public:
  // Absent: nobody who counts for all servers answers.
  using Done = std::function<void(std::optional<LimitAnswer>)>;

  virtual ~LimitPool() = default;
  // Calls `done` once, on any thread, perhaps before ask() returns.
  virtual void ask(LimitAsk ask, Done done) = 0;
  // A request that was counted has ended.
  virtual void end(const std::string& tenant) = 0;
  // A request for which so many tokens were taken here used so many.
  virtual void settle(const std::string& tenant, std::uint64_t taken, std::uint64_t used) = 0;
  // How many servers count together, as far as is known; at least 1.
  virtual std::uint32_t servers() const = 0;
};

}  // namespace loci
