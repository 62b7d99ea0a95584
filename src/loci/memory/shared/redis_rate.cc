// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_rate.h"

#include <algorithm>
#include <string>

namespace loci {
namespace {

// The first is for the latency, the second warms memory and windows up, the last is measured. One that does
// not come in time bounds the rate.
constexpr std::size_t kTexts[] = {1, 64 << 10, 1 << 20};

SharedRate rate_of(std::size_t bytes, Nanos one_way, Nanos latency) {
  const auto nanos = static_cast<std::uint64_t>(std::max<Nanos>(1, one_way));
  return {.latency = latency,
          .bytes_per_second = std::max<std::uint64_t>(1, bytes * std::uint64_t{kNanosPerSecond} / nanos)};
}

}  // namespace

RedisRate measure_redis_rate(RedisConnection& connection, const Clock& clock, Nanos limit) {
  const Nanos deadline = clock.now() + limit;
  const std::string text(kTexts[std::size(kTexts) - 1], '.');
  RedisRate found;
  Nanos latency = 0;
  RedisReply reply;
  for (const std::size_t bytes : kTexts) {
    const std::string_view said = std::string_view(text).substr(0, bytes);
    const Nanos begun = clock.now();
    Status status = connection.send({"ECHO", said}, deadline);
    if (status.ok()) status = connection.receive(bytes, deadline, reply);
    if (!status.ok()) {
      const bool is_slow = status.code() == StatusCode::kDeadlineExceeded && bytes > 1;
      const SharedRate most = rate_of(bytes, (clock.now() - begun) / 2, latency);
      if (is_slow && (!found.rate || found.rate->bytes_per_second > most.bytes_per_second)) found.rate = most;
      return {found.rate, false};
    }
    if (reply.kind != RedisReply::Kind::kBytes || reply.text() != said) return {};
    const Nanos took = clock.now() - begun;
    if (bytes == 1) {
      latency = took;
      continue;
    }
    // (The first text may have been held up: what a larger one took is more than the latency, too. And no
    // text is believed to have waited for more than half of its time.)
    latency = std::min(latency, took);
    found.rate = rate_of(bytes, std::max(took / 4, (took - latency) / 2), latency);
  }
  return found;
}

}  // namespace loci
