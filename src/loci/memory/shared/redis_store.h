// SPDX-License-Identifier: Apache-2.0
// A shared store that speaks Redis's protocol: Redis, Valkey, Kvrocks (one server, or behind a proxy that
// makes several look like one). docs/shared-store.md has its keys, values and commands.
//
// Threads: one asks, another makes the connection for that, some read, one writes, deletes and probes a store
// that is down; each has a connection of its own. So neither a value of megabytes nor a silent store is ever
// before a question.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/redis_address.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct RedisStoreOptions {
  RedisAddress address;
  SharedKeys keys;
  std::vector<SharedGroup> groups;  // the backend's
  // Since a value was written or used, rounded up to seconds; 0: for ever, or as long as the store likes.
  Nanos time_to_live = 0;
  std::uint32_t readers = 2;                  // threads
  Nanos connect_limit = 2 * kNanosPerSecond;  // until a connection may be used, but for what is asked
  // Of what one call reads or writes, beside what its bytes take at the slowest rate that is waited for; and
  // of its waiting before.
  Nanos transfer_limit = 8 * kNanosPerSecond;
  std::uint64_t rate_min = std::uint64_t{4} << 20;      // bytes a second
  std::uint64_t window_bytes = std::uint64_t{4} << 20;  // asked for ahead of what has come, by each reader
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // on its threads
};

// Tries the store. One that cannot be reached is no error, but a warning: it may come. `clock` must outlive
// the store, whose destructor ends what is under way at once and calls back for all of it. Errors:
// kInvalidArgument (the store refuses the login or the database, or is none).
Result<std::unique_ptr<SharedStore>> open_redis_store(RedisStoreOptions options, const Clock& clock);

}  // namespace loci
