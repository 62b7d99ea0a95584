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
  ~MemberWatch();

 private:
  void run();

  const std::unique_ptr<MemberTable> table_;
  const std::function<void(MemberList)> tell_;
  const std::shared_ptr<spdlog::logger> log_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace loci
