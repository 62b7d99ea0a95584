// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_rate.h"

#include <algorithm>
#include <string>

namespace loci {
namespace {

// The first is for the latency, the second warms memory and windows up, the last is measured; if it does not
// come in time, the one before.
constexpr std::size_t kTexts[] = {1, 64 << 10, 1 << 20};

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
    if (!status.ok()) return {found.rate, false};
    if (reply.kind != RedisReply::Kind::kBytes || reply.text() != said) return {};
    const Nanos took = clock.now() - begun;
    if (bytes == 1) {
      latency = took;
      continue;
    }
    const Nanos one_way = std::max<Nanos>(1, (took - latency) / 2);
    found.rate = {.latency = latency,
                  .bytes_per_second = std::max<std::uint64_t>(
                      1, bytes * std::uint64_t{kNanosPerSecond} / static_cast<std::uint64_t>(one_way))};
  }
  return found;
}

}  // namespace loci
