// SPDX-License-Identifier: Apache-2.0
// What the threads of a store that speaks Redis's protocol have in common: its account, how long calls may
// take, and the nodes to which connections are made.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_store.h"
#include "loci/memory/shared/redis_topology.h"
#include "loci/memory/shared/shared_account.h"
#include "loci/memory/shared/shared_format.h"

namespace loci {

inline constexpr std::uint64_t kRedisSmallReplyBytes = 1024;

// Thread-safe.
class RedisStoreState {
 public:
  // `clock` must outlive it. `wants_tending`: see RedisTopology.
  RedisStoreState(RedisStoreOptions options, const Clock& clock, std::function<void()> wants_tending);

  const RedisStoreOptions& options() const { return options_; }
  const Clock& clock() const { return clock_; }
  const SharedFormat& format() const { return format_; }
  // In seconds, as the store reads it; empty: none.
  const std::string& time_to_live() const { return time_to_live_; }
  RedisTopology& topology() { return topology_; }
  const RedisStop& stop() const { return stop_; }

  SharedAccount& account() { return account_; }
  const SharedAccount& account() const { return account_; }
  // False: what waits is ended without asking the store.
  bool asked() const { return account_.is_up() && !stopping_; }

  // Until when a connection that is made now must be made.
  Nanos connect_by() const { return clock_.now() + options_.connect_limit; }
  // When a transfer of so many bytes that begins now has taken too long.
  Nanos limit_of(std::uint64_t bytes) const;

  // Ends what is under way at once; nothing is begun any more.
  void begin_stop();

 private:
  const RedisStoreOptions options_;
  const Clock& clock_;
  const SharedFormat format_;
  const std::string time_to_live_;
  RedisTopology topology_;
  RedisStop stop_;
  std::atomic<bool> stopping_{false};
  SharedAccount account_;
};

// The connection of one thread, made when it is needed.
class RedisLine {
 public:
  explicit RedisLine(RedisStoreState& store) : store_(store) {}

  Result<RedisConnection*> get(Nanos deadline);
  // Replies that nobody wants may be on their way.
  void drop() { connection_.reset(); }

 private:
  RedisStoreState& store_;
  std::unique_ptr<RedisConnection> connection_;
};

}  // namespace loci
