// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/member_watch.h"

#include <pthread.h>

#include <chrono>
#include <utility>

namespace loci {

MemberWatch::MemberWatch(std::unique_ptr<MemberTable> table, std::function<void(MemberList)> tell,
                         std::shared_ptr<spdlog::logger> log)
    : table_(std::move(table)), tell_(std::move(tell)), log_(std::move(log)), thread_([this] { run(); }) {}

MemberWatch::~MemberWatch() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto most = std::chrono::nanoseconds(kMemberStopWait);
    is_over = stopped_.wait_for(lock, most, [this]() REQUIRES(mutex_) { return is_over_; });
  }
  if (!is_over) table_->abandon();
  thread_.join();
}

void MemberWatch::run() {
  pthread_setname_np(pthread_self(), "loci-watch");
  bool was_well = true;
  MutexLock lock(mutex_);
  while (!is_stopping_) {
    lock.unlock();
    Result<MemberList> list = table_->list();
    if (list.ok() != was_well) {
      if (list.ok())
        log_->info("the cluster's database answers again");
      else
        log_->warn("the cluster's database does not list the members, so the list stays as it was: {}",
                   list.status().message());
    }
    was_well = list.ok();
    if (list.ok()) tell_(*std::move(list));
    lock.lock();
    stopped_.wait_for(lock, std::chrono::nanoseconds(kMemberRenewal),
                      [this]() REQUIRES(mutex_) { return is_stopping_; });
  }
  is_over_ = true;
  stopped_.notify_all();
}

}  // namespace loci
