// SPDX-License-Identifier: Apache-2.0
// A server's membership of a cluster: a thread that renews its row every second, with its load.
#pragma once

#include <spdlog/logger.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
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
  // As MemberTable::ended_stores(); but empty until this member has renewed its own row for longer than rows
  // live, because after a time without the database all rows are old.
  std::vector<std::string> ended_stores();
  // Makes the row say that the member drains. Waits at most two seconds until that is written.
  void drain();

 private:
  Membership(std::unique_ptr<MemberTable> table, Member member, std::function<MemberLoad()> load,
             std::shared_ptr<spdlog::logger> log, MemberRenewal joined);
  void run();
  void note_renewed(bool is_renewed);
  // Errors: those of MemberTable::renew().
  Status renew();
  void log_change(const Status& before, const Status& now);

  const std::unique_ptr<MemberTable> table_;
  Member member_;  // only for the thread, except its id
  const std::function<MemberLoad()> load_;
  const std::shared_ptr<spdlog::logger> log_;
  MemberRenewal last_;                          // only for the thread
  std::int64_t last_at_ = 0;                    // by the monotonic clock, in milliseconds; only for the
                                                // thread
  std::int64_t renewed_at_ = 0;                 // time of the last try, by the same clock; only for the
                                                // thread
  std::atomic<std::int64_t> renewed_since_{0};  // since when renewals have had no gap, by the same clock; 0:
                                                // the last one failed

  Mutex mutex_;
  Condition changed_;
  bool is_draining_ GUARDED_BY(mutex_) = false;
  bool is_told_ GUARDED_BY(mutex_) = false;  // the row says that it drains
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // the thread asks the database no more
  std::thread thread_;
};

}  // namespace loci
