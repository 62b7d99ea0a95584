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
  // What a full bucket has more than this one, in units times milliseconds of a minute, rounded up. With the
  // time it is all there is to know of a bucket, whatever its limit.
  std::int64_t missing(Nanos now);
  // A bucket that lacks so much at that time; of more than a week's worth, that.
  static RateBucket with_missing(std::uint32_t per_minute, std::int64_t missing, Nanos at);

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

// All there is to know of a meter, so that several servers can count with one.
struct TenantUse {
  std::int64_t requests_missing = 0;  // RateBucket::missing()
  std::int64_t tokens_missing = 0;
  Nanos at = 0;               // when they were that
  std::uint32_t running = 0;  // requests
  friend bool operator==(const TenantUse&, const TenantUse&) = default;
};

// Thread-compatible.
class TenantMeter {
 public:
  TenantMeter() = default;
  // A meter that goes on from what another one had counted. A time after `now` counts as `now`.
  TenantMeter(const TenantLimits& limits, const TenantUse& use, Nanos now);
  // What was counted, of the limits that there are.
  TenantUse use(Nanos now);

  // Takes a request, before anybody knows what it asks for. `limits` may differ from call to call (the file
  // is read again).
  std::optional<LimitReached> begin(const TenantLimits& limits, Nanos now);
  // The same whatever the limits, of a request that was admitted at a server which has ended. What it takes
  // beyond them is owed.
  void begin_again(const TenantLimits& limits, Nanos now);
  // Takes the tokens of a request that has begun, of which the prompt has `prompt_tokens`: tokens_taken() of
  // them, some of which end() gives back or adds to.
  std::optional<LimitReached> take_tokens(const TenantLimits& limits, std::uint64_t prompt_tokens,
                                          std::uint64_t tokens, Nanos now);
  // Whether a prompt has more tokens than a minute's worth, so that it can never be taken.
  static std::optional<LimitReached> check_size(const TenantLimits& limits, std::uint64_t prompt_tokens);
  // What take_tokens() takes for so many tokens: never more than a minute's worth, so that long replies can
  // be asked for at all.
  static std::uint64_t tokens_taken(const TenantLimits& limits, std::uint64_t tokens);
  // A request that begin() took ends.
  void end();
  // Gives back what was taken and not used, or takes what was used beyond.
  void settle(std::uint64_t taken, std::uint64_t used, Nanos now);
  RateState state(const TenantLimits& limits, Nanos now);
  std::uint32_t running() const { return running_; }

 private:
  void apply(const TenantLimits& limits, Nanos now);
  std::optional<RateBucket> requests_, tokens_;
  std::uint32_t running_ = 0;
};

}  // namespace loci
