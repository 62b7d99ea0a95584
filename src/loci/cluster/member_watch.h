// SPDX-License-Identifier: Apache-2.0
// A front's view of the members: a thread that reads the list every second.
#pragma once

#include <spdlog/logger.h>

#include <functional>
#include <memory>
#include <thread>

#include "loci/base/mutex.h"
#include "loci/cluster/member_table.h"

namespace loci {

// While the database does not answer it reports nothing, so known members stay known.
class MemberWatch {
 public:
  // `tell`: called on the watch's thread with each list.
  MemberWatch(std::unique_ptr<MemberTable> table, std::function<void(MemberList)> tell,
              std::shared_ptr<spdlog::logger> log);
  ~MemberWatch();  // waits at most kMemberStopWait for a database that does not answer

 private:
  void run();

  const std::unique_ptr<MemberTable> table_;
  const std::function<void(MemberList)> tell_;
  const std::shared_ptr<spdlog::logger> log_;
  Mutex mutex_;
  Condition stopped_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // the thread asks the database no more
  std::thread thread_;
};

}  // namespace loci
