// SPDX-License-Identifier: Apache-2.0
// A server's part in counting what tenants use of their limits over all servers: a thread that asks the
// cluster's database, for all requests that wait at once.
//
//   network thread     ask a   ask b   ask c        end a
//   this thread             [ a ]           [ b, c, end of a ]
//                             one transaction each
//
// (docs/decisions/cluster-limits.md)
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/cluster/limits/limit_table.h"
#include "loci/serve/tenants/limit_pool.h"

namespace loci {

// Thread-safe. Knows each tenant that has asked; tenants are those of the file of keys.
class ClusterLimits final : public LimitPool {
 public:
  ClusterLimits(std::unique_ptr<LimitTable> table, std::shared_ptr<spdlog::logger> log);
  ~ClusterLimits() override;  // as stop()

  // Ends the thread: what waits, and every later ask, is told that nobody counts (std::nullopt). Waits at
  // most kMemberStopWait for the database.
  void stop();

  void ask(LimitAsk ask, Done done) override;
  void end(const std::string& tenant) override;
  void settle(const std::string& tenant, std::uint64_t taken, std::uint64_t used) override;
  std::uint32_t servers() const override;

 private:
  using Time = std::chrono::steady_clock;
  struct Waiting {
    LimitAsk ask;
    Done done;
  };
  struct Known {
    TenantLimits limits;        // as last asked
    std::uint32_t running = 0;  // requests that were counted and have not ended
    std::uint64_t taken = 0;    // of requests that have ended, as the database does not know yet
    std::uint64_t used = 0;
  };
  struct Round {
    std::vector<CountedTenant> tenants;
    std::vector<std::vector<Done>> done;  // of their asks
  };

  void run();
  Round begin_round() REQUIRES(mutex_);
  // Counts and tells who waits. Errors: those of LimitTable.
  Status count(Round round);
  // A database that was away may have forgotten what runs.
  void tell_all() REQUIRES(mutex_);
  void refuse_waiting();
  Status renew();
  void log_change(const Status& now);

  const std::unique_ptr<LimitTable> table_;
  const std::shared_ptr<spdlog::logger> log_;

  mutable Mutex mutex_;
  Condition changed_;
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
  std::map<std::string, Known> known_ GUARDED_BY(mutex_);
  std::set<std::string> changes_ GUARDED_BY(mutex_);  // tenants of whom the database does not know all
  Time::time_point busy_since_ GUARDED_BY(mutex_);    // when the call that runs began; max: none does
  std::uint32_t servers_ GUARDED_BY(mutex_) = 1;
  bool is_up_ GUARDED_BY(mutex_) = true;  // the last call was answered
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // the thread asks the database no more
  std::thread thread_;
};

}  // namespace loci
