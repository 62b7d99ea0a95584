// SPDX-License-Identifier: Apache-2.0
// A server's membership of a cluster: a thread that renews its row every second, with its load.
#pragma once

#include <spdlog/logger.h>

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
};

// Thread-safe. With the database gone the server goes on, and joins again by itself. Where a member that is
// not alike has come meanwhile, the server is out of the cluster, and tries until that one has left.
class Membership {
 public:
  // `load` is called on the membership's thread until that ends. Errors: MemberTable::join()'s.
  static Result<std::unique_ptr<Membership>> join(std::unique_ptr<MemberTable> table, Member member,
                                                  std::function<MemberLoad()> load,
                                                  std::shared_ptr<spdlog::logger> log);
  // Leaves. Of a database that stands still it waits kMemberStopWait; the row is then left to grow too old.
  ~Membership();

  const std::string& id() const { return member_.id; }
  // MemberTable::ended_stores(), of which nothing is believed until this member has renewed its own row for
  // longer than rows live: after a time without the database all rows are old.
  std::vector<std::string> ended_stores();
  // From now on the row says that it drains. Waits, two seconds at most, until that is written.
  void drain();

 private:
  Membership(std::unique_ptr<MemberTable> table, Member member, std::function<MemberLoad()> load,
             std::shared_ptr<spdlog::logger> log, MemberRenewal joined);
  void run();
  void note_renewed(bool is_renewed);
  // Errors: MemberTable::renew()'s.
  Status renew();
  void log_change(const Status& before, const Status& now);

  const std::unique_ptr<MemberTable> table_;
  Member member_;  // the thread's, but for its id
  const std::function<MemberLoad()> load_;
  const std::shared_ptr<spdlog::logger> log_;
  MemberRenewal last_;                          // the thread's
  std::int64_t last_at_ = 0;                    // by the monotonic clock, in milliseconds; the thread's
  std::int64_t renewed_at_ = 0;                 // by the same: the last try; the thread's
  std::atomic<std::int64_t> renewed_since_{0};  // by the same, without a gap; 0: the last one failed

  Mutex mutex_;
  Condition changed_;
  bool is_draining_ GUARDED_BY(mutex_) = false;
  bool is_told_ GUARDED_BY(mutex_) = false;  // the row says that it drains
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // the thread asks the database nothing more
  std::thread thread_;
};

}  // namespace loci
