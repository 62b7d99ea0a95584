// SPDX-License-Identifier: Apache-2.0
// A server's membership of a cluster: a thread that renews its row every second, with its load.
#pragma once

#include <spdlog/logger.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/cluster/member.h"
#include "loci/cluster/member_table.h"

namespace loci {

struct MemberLoad {
  std::uint32_t running = 0;
  std::uint32_t queued = 0;
  std::array<MemberSlots, kMemberTiers.size()> slots{};
  // The device stands still. The row is then left to grow old, as that of a process that stands still: fronts
  // and members go on without this one, until it goes on.
  bool stalls = false;
};

// Whether rows that are too old say that their members have ended: only after renewals have gone on without a
// gap for longer than rows live, because after a time without the database all rows are old; and so they are
// after a step of the database's clock, until their members have renewed them by the new time. One thread
// notes the tries; any may ask.
class RowTrust {
 public:
  // A try to renew the row that took `took_ms` ended at `at_ms` of the monotonic clock, and took place at
  // `database_ms` by the database's; nullopt: it failed.
  void note_try(std::int64_t at_ms, std::optional<std::int64_t> database_ms, std::int64_t took_ms);
  bool is_given(std::int64_t at_ms) const;

 private:
  std::int64_t tried_at_ = 0;
  std::int64_t ahead_ = 0;              // of the monotonic clock, the database's
  std::int64_t took_ = 0;               // the try before
  std::atomic<std::int64_t> since_{0};  // 0: the last try failed
};

// Thread-safe. If the database is gone the server goes on, and joins again by itself later. If a member with
// a different model of the same name has come meanwhile, the server is out of the cluster, and tries again
// until that one has left.
class Membership {
 public:
  // `load` is called on the membership's thread until the membership ends. Errors: those of
  // MemberTable::join().
  static Result<std::unique_ptr<Membership>> join(std::unique_ptr<MemberTable> table, Member member,
                                                  std::function<MemberLoad()> load,
                                                  std::shared_ptr<spdlog::logger> log);
  // Leaves the cluster. It waits at most kMemberStopWait for the database; else the row stays and grows too
  // old.
  ~Membership();

  const std::string& id() const { return member_.id; }
  // As MemberTable::ended_stores(); but empty while old rows say nothing (RowTrust).
  std::vector<std::string> ended_stores();
  // Makes the row say that the member drains. Waits at most two seconds until that is written.
  void drain();

 private:
  Membership(std::unique_ptr<MemberTable> table, Member member, std::function<MemberLoad()> load,
             std::shared_ptr<spdlog::logger> log, MemberRenewal joined);
  void run();
  // Errors: those of MemberTable::renew().
  Status renew();
  void log_change(const Status& before, const Status& now);

  const std::unique_ptr<MemberTable> table_;
  Member member_;  // only for the thread, except its id
  const std::function<MemberLoad()> load_;
  const std::shared_ptr<spdlog::logger> log_;
  MemberRenewal last_;        // only for the thread
  std::int64_t last_at_ = 0;  // by the monotonic clock, in milliseconds; only for the thread
  RowTrust trust_;

  Mutex mutex_;
  Condition changed_;
  bool is_draining_ GUARDED_BY(mutex_) = false;
  bool is_told_ GUARDED_BY(mutex_) = false;  // the row says that it drains
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // the thread asks the database no more
  std::thread thread_;
};

}  // namespace loci
