// SPDX-License-Identifier: Apache-2.0
// A server's part in counting what tenants use of their limits over all servers: a thread that asks the
// cluster's database, for all requests that wait at once.
//
//   network thread     ask a   ask b   ask c        end a
//   this thread             [ a ]           [ b, c, end of a ]
//                             one transaction each
//
// A refusal is kept for a moment (kRefusalKept), so that a tenant that sends without end is counted ten times
// a second, and not in each transaction. A tenant whom another server counts just now is asked for again
// after a pause (locked_pause.h); the transaction goes on without it. Of one tenant, who came first is
// counted first.
//
// (docs/decisions/cluster-limits.md)
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/cluster/limits/limit_table.h"
#include "loci/cluster/limits/locked_pause.h"
#include "loci/serve/tenants/limit_pool.h"

namespace loci {

// Thread-safe. Knows each tenant that has asked; tenants are those of the file of keys.
class ClusterLimits final : public LimitPool {
 public:
  // `seed`: of its pauses; unlike that of other servers.
  ClusterLimits(std::unique_ptr<LimitTable> table, std::shared_ptr<spdlog::logger> log, std::uint64_t seed);
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
    Time::time_point since;
  };
  struct Known {
    TenantLimits limits;        // as last asked
    std::uint32_t running = 0;  // requests that were counted and have not ended
    std::uint64_t taken = 0;    // of requests that have ended, as the database does not know yet
    std::uint64_t used = 0;
    std::optional<LimitAnswer> refusal;  // of a request that would have begun, with these limits
    Time::time_point refused_until;      // until then no other one asks the database
    Time::time_point locked_until;       // until then nothing of the tenant is counted
    LockedPause pause;                   // before it
  };
  struct Round {
    std::vector<CountedTenant> tenants;
    std::vector<std::vector<Waiting>> waiting;  // for the answers to their asks
  };
  struct Answered {
    Done done;
    std::optional<LimitAnswer> answer;
  };

  void run();
  // Takes what is due, and sets due_ for the rest.
  Round begin_round() REQUIRES(mutex_);
  void take_due(Round& round, Time::time_point now) REQUIRES(mutex_);
  static Time::time_point due_at(const Known& known, const LimitAsk* ask);
  void wake_by(Time::time_point due) REQUIRES(mutex_);
  // Counts and tells who waits. Errors: those of LimitTable.
  Status count(Round round);
  // What became of one tenant of a round. Returns whom to tell what.
  std::vector<Answered> note_counted(CountedTenant& tenant, std::vector<Waiting>& waiting) REQUIRES(mutex_);
  std::vector<Answered> put_back(CountedTenant& tenant, std::vector<Waiting>& waiting, const Status& counted)
      REQUIRES(mutex_);
  // What has happened to a tenant may let its next request begin.
  void change(const std::string& tenant, Known& known) REQUIRES(mutex_);
  // A database that was away may have forgotten what runs.
  void tell_all() REQUIRES(mutex_);
  void refuse_waiting();
  Status count_due();
  Status renew();
  void log_change(const Status& now);

  const std::unique_ptr<LimitTable> table_;
  const std::shared_ptr<spdlog::logger> log_;

  mutable Mutex mutex_;
  Condition changed_;
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);  // who came first is first
  std::map<std::string, Known> known_ GUARDED_BY(mutex_);
  std::set<std::string> changes_ GUARDED_BY(mutex_);  // tenants of whom the database does not know all
  Time::time_point due_ GUARDED_BY(mutex_) = Time::time_point::max();  // when the next round may begin
  Time::time_point busy_since_ GUARDED_BY(mutex_);  // when the call that runs began; max: none does
  std::uint32_t servers_ GUARDED_BY(mutex_) = 1;    // as known last: what an outage hides is not forgotten
  bool is_up_ GUARDED_BY(mutex_) = true;            // the last call was answered
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // the thread asks the database no more
  Random pauses_ GUARDED_BY(mutex_);
  int renewals_ = 0;  // the thread's
  // The thread's: since when no call has failed; none before the first renewal.
  std::optional<Time::time_point> renewed_since_;
  std::thread thread_;
};

}  // namespace loci
