// SPDX-License-Identifier: Apache-2.0
// The only place where time is read. Code that decides never reads it, but gets the time as an argument.
#pragma once

#include <cstdint>
#include <limits>

namespace loci {

// Nanoseconds since an arbitrary start; never goes back. Costs and latencies use the same type.
using Nanos = std::int64_t;

inline constexpr Nanos kNanosPerMilli = 1'000'000;
inline constexpr Nanos kNanosPerSecond = 1'000'000'000;
inline constexpr Nanos kNever = std::numeric_limits<Nanos>::max();  // a time that does not come

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

// The machine's monotonic clock.
class SystemClock final : public Clock {
 public:
  Nanos now() const override;
};

// The time of day, for people: when something was made. Never a measure of a duration.
std::int64_t seconds_since_1970();

}  // namespace loci
