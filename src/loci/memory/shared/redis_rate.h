// SPDX-License-Identifier: Apache-2.0
// How fast values come from a store that speaks Redis's protocol, by a text that it sends back (ECHO):
// nothing is kept there. So the first plan of a server that has not read yet is about right.
#pragma once

#include <optional>

#include "loci/base/clock.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct RedisRate {
  std::optional<SharedRate> rate;  // absent: it does not say
  bool is_usable = true;           // the connection
};

// Takes at most `limit`, and if the store is slow, as long as that: then the rate is the most that it can be.
// A text goes there and comes back, one after the other, each taken to be half of the time. `connection` must
// be to one server: a cluster's would send each text to another node, and leave a slow one alone.
RedisRate measure_redis_rate(RedisConnection& connection, const Clock& clock, Nanos limit);

}  // namespace loci
