// SPDX-License-Identifier: Apache-2.0
// Makes a connection on a thread of its own. A question may wait for 20 ms, and a connection over TLS to
// another city takes longer. While the connection is being made questions end without an answer, which does
// not count as a failure of the store; the first question after that finds it made.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/memory/shared/redis_connection.h"

namespace loci {

// Thread-safe. One connection at a time.
class RedisDialer {
 public:
  using Dial = std::function<Result<std::unique_ptr<RedisConnection>>()>;  // within a bound

  // `told`: what came of each try, on the dialer's thread.
  RedisDialer(Dial dial, std::function<void(const Status&)> told, const Clock& clock);
  // Ends with the try that is under way.
  ~RedisDialer();
  RedisDialer(const RedisDialer&) = delete;
  RedisDialer& operator=(const RedisDialer&) = delete;

  // Begins to make a connection, unless there is one.
  void begin();
  // begin(), then waits for it. Null: not by `deadline`, or it failed.
  std::unique_ptr<RedisConnection> take(Nanos deadline);

 private:
  void run();

  const Dial dial_;
  const std::function<void(const Status&)> told_;
  const Clock& clock_;
  Mutex mutex_;
  Condition changed_;
  bool is_wanted_ GUARDED_BY(mutex_) = false;  // until a try has ended
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<RedisConnection> made_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace loci
