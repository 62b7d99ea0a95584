// SPDX-License-Identifier: Apache-2.0
// What the threads of a store that speaks Redis's protocol have in common: how the store is, what was
// counted, how long calls may take, and the nodes to which connections are made.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/shared_health.h"
#include "loci/memory/shared/redis_store.h"
#include "loci/memory/shared/redis_topology.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"

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

  // --- how the store is ---

  // False: what waits is ended without asking the store.
  bool asked() const { return health_.up() && !stopping_; }
  bool up() const { return health_.up(); }
  // When a store that is down is to be probed.
  Nanos probe_at() const { return health_.probe_at(); }
  // It cannot be reached to begin with.
  void begin_down(const Status& why);
  // Says what came of asking it. What a caller's stop cut short says nothing.
  void note_health(const Status& status);
  // What was not asked, and what waited behind others until it was too late.
  static Status not_asked();
  static Status behind();

  // --- how long calls take ---

  // Until when a connection that is made now must be made.
  Nanos connect_by() const { return clock_.now() + options_.connect_limit; }
  // When a transfer of so many bytes that begins now has taken too long.
  Nanos limit_of(std::uint64_t bytes) const;

  // --- counts ---

  void count(std::uint64_t SharedStoreStats::* what, std::uint64_t by);
  SharedStoreStats stats() const;

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
  SharedHealth health_;
  mutable Mutex stats_mutex_;
  SharedStoreStats stats_ GUARDED_BY(stats_mutex_);
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
