// SPDX-License-Identifier: Apache-2.0
// A front's view of the members: a thread that reads the list every second.
#pragma once

#include <spdlog/logger.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "loci/cluster/member_table.h"

namespace loci {

// While the database does not answer nothing is told: who is known stays known.
class MemberWatch {
 public:
  // `tell`: called on the watch's thread with each list.
  MemberWatch(std::unique_ptr<MemberTable> table, std::function<void(MemberList)> tell,
              std::shared_ptr<spdlog::logger> log);
  ~MemberWatch();  // waits kMemberStopWait for a database that stands still

 private:
  void run();

  const std::unique_ptr<MemberTable> table_;
  const std::function<void(MemberList)> tell_;
  const std::shared_ptr<spdlog::logger> log_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopping_ = false;  // both guarded by mutex_
  bool is_over_ = false;      // the thread asks the database nothing more
  std::thread thread_;
};

}  // namespace loci
