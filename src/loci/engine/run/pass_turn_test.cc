// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/pass_turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "loci/base/mutex.h"

namespace loci {
namespace {

// As the core's thread does, which has many events: it lets the mutex go and takes it again at once.
TEST(PassTurn, WhoClaimsWaitsForOneEventAtMost) {
  PassTurn turn;
  Mutex mutex;
  std::atomic<bool> stop = false;
  std::atomic<int> events = 0;
  std::thread core([&] {
    while (!stop.load()) {
      turn.let_go_first();
      const MutexLock lock(mutex);
      while (!stop.load()) {
        ++events;
        if (turn.is_claimed()) break;
      }
    }
  });
  while (events.load() == 0) std::this_thread::yield();
  int most = 0;
  for (int i = 0; i < 200; ++i) {
    turn.claim();
    const int before = events.load();
    {
      const MutexLock lock(mutex);
      most = std::max(most, events.load() - before);
      turn.taken();
    }
  }
  stop.store(true);
  core.join();
  EXPECT_LE(most, 1) << "the event that runs ends, and no other begins";
}

}  // namespace
}  // namespace loci
