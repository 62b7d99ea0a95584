// SPDX-License-Identifier: Apache-2.0
#include "loci/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

#include "loci/base/rounds_testing.h"

namespace loci {
namespace {

class Counter {
 public:
  void add() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait(int count) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() REQUIRES(mutex_) { return count_ >= count; });
  }
  bool wait_briefly(int count) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(1),
                             [&]() REQUIRES(mutex_) { return count_ >= count; });
  }

 private:
  Mutex mutex_;
  Condition changed_;
  int count_ GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, OneThreadAtATimeAndWaitersAreTold) {
  Counter counter;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) counter.add();
  });
  for (int i = 0; i < 1000; ++i) counter.add();
  counter.wait(2000);
  other.join();
  EXPECT_FALSE(counter.wait_briefly(2001));
}

TEST(Mutex, ALockIsGivenBackAndTakenAgain) {
  Mutex mutex;
  MutexLock lock(mutex);
  lock.unlock();
  std::thread([&] { const MutexLock other(mutex); }).join();
  lock.lock();
  mutex.assert_held();
}

TEST(Mutex, ManyReadAtOnce) {
  SharedMutex mutex;
  const ReadLock lock(mutex);
  std::thread([&] { const ReadLock other(mutex); }).join();
}

TEST(Mutex, InnerOnesAreTakenUnderOuterOnesAlone) {
  Mutex outer{LockOrder::kOuter}, inner, other;
  {
    const MutexLock first(outer);
    const MutexLock second(inner);
  }
  if (!kSanitized) GTEST_SKIP() << "the build with sanitizers checks the order";
  const auto beside = [&] {
    const MutexLock first(inner);
    const MutexLock second(other);
  };
  const auto against = [&] {
    const MutexLock first(inner);
    const MutexLock second(outer);
  };
  EXPECT_DEATH(beside(), "no mutex is taken under one of its own order");
  EXPECT_DEATH(against(), "no mutex is taken under one of its own order");
}

}  // namespace
}  // namespace loci
