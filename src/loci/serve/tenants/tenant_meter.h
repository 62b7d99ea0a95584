// SPDX-License-Identifier: Apache-2.0
// What one tenant has used of its limits. Pure: the time is an argument.
//
// Rates are token buckets: a bucket holds one minute's worth and fills evenly, so over any time of t
// minutes at most (t + 1) · limit goes through. Tokens are taken for all that the request may
// become (prompt and max_tokens); at its end what it did not use is given back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loci/base/clock.h"
#include "loci/serve/tenants/tenant.h"

namespace loci {

// Thread-compatible. Exact: in integers, without drift.
class RateBucket {
 public:
  // A bucket with a new limit keeps what was used.
  void set_limit(std::uint32_t per_minute, Nanos now);
  std::uint32_t limit() const { return limit_; }
  // How many whole units are left; below zero if more was used than had been taken.
  std::int64_t available(Nanos now);
  // The time until `amount` (at most the limit) is there; 0: it is.
  Nanos wait_for(std::uint64_t amount, Nanos now);
  // The time until it is full.
  Nanos wait_until_full(Nanos now) { return wait_for(limit_, now); }
  void take(std::uint64_t amount, Nanos now);
  void give_back(std::uint64_t amount, Nanos now);

 private:
  using Level = __int128;  // units · nanoseconds of a minute
  void fill(Nanos now);
  std::uint32_t limit_ = 0;
  Level level_ = 0;
  Nanos at_ = 0;
  bool begun_ = false;
};

// Why a request is not admitted.
struct LimitReached {
  enum class Kind : std::uint8_t { kRequests, kTokens, kConcurrent, kTooLarge };
  Kind kind = Kind::kRequests;
  std::uint64_t limit = 0;
  std::uint64_t found = 0;
  Nanos retry_after = 0;  // kTooLarge: never
};

// What is left, for headers.
struct RateState {
  struct Rate {
    std::uint32_t limit = 0;
    std::uint32_t remaining = 0;
    Nanos reset = 0;  // until all of it is there again
  };
  std::optional<Rate> requests, tokens;
};

// Thread-compatible.
class TenantMeter {
 public:
  // Takes a request, before anybody knows what it asks for. `limits` may differ from call to call (the file
  // is read again).
  std::optional<LimitReached> begin(const TenantLimits& limits, Nanos now);
  // Takes the tokens of a request that has begun, of which the prompt has `prompt_tokens`: tokens_taken() of
  // them, some of which end() gives back or adds to.
  std::optional<LimitReached> take_tokens(const TenantLimits& limits, std::uint64_t prompt_tokens,
                                          std::uint64_t tokens, Nanos now);
  // What take_tokens() takes for so many tokens: never more than a minute's worth, so that long replies can
  // be asked for at all.
  static std::uint64_t tokens_taken(const TenantLimits& limits, std::uint64_t tokens);
  void end(std::uint64_t taken, std::uint64_t used, Nanos now);
  RateState state(const TenantLimits& limits, Nanos now);
  std::uint32_t running() const { return running_; }

 private:
  void apply(const TenantLimits& limits, Nanos now);
  std::optional<RateBucket> requests_, tokens_;
  std::uint32_t running_ = 0;
};

}  // namespace loci
