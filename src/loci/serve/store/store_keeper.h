// SPDX-License-Identifier: Apache-2.0
// What is done to the store while a server runs: what is over the limits is deleted, at start and every
// few minutes, and /metrics is told its size.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

struct StoreKeeping {
  StoreLimits limits;
  Nanos period = 300 * kNanosPerSecond;
};

// Says in the log whose conversations made room for newer ones (StoreOptions::made_room), of each tenant
// at once and then once in a period with what went meanwhile. Thread-safe.
class QuotaLog {
 public:
  QuotaLog(const Clock& clock, Nanos period, std::shared_ptr<spdlog::logger> log)
      : clock_(clock), period_(period), log_(std::move(log)) {}
  void made_room(std::string_view tenant, std::uint64_t gone);

 private:
  struct Entry {
    Nanos told_at = 0;
    std::uint64_t gone = 0;  // since then
  };

  const Clock& clock_;
  const Nanos period_;
  const std::shared_ptr<spdlog::logger> log_;
  Mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_ GUARDED_BY(mutex_);  // of tenants that were ever over
};

// Which servers have surely ended. One look tells too little: after a restart of the database nobody holds a
// lock there, and while it stands still all members' rows grow old. Who seemed to have ended at every look
// for five seconds has, where each look was answered within a second and none was missed. Thread-compatible.
class EndedServers {
 public:
  // A look that began and ended then, and who seemed to have ended. Returns who surely has.
  std::vector<std::string> look(Nanos begin, Nanos end, const std::vector<std::string>& seem);

 private:
  std::map<std::string, Nanos> since_;  // of those who seemed to have ended at the last look
  Nanos last_ = 0;                      // its end
};

// Every `period`, on a thread of the store's until these end: responses in progress whose server has surely
// ended fail (ConversationStore::fail_interrupted). `ended` is called there. For a store that servers share.
void fail_interrupted_responses(WorkerPool& store_thread, ConversationStore& store, Nanos period,
                                std::function<std::vector<std::string>()> ended,
                                std::shared_ptr<spdlog::logger> log);

// Works on `store_thread` until that ends, a bounded part at a time, so that turns are committed in
// between. What it is given outlives `store_thread`; errors are logged, and it tries again.
void keep_store(WorkerPool& store_thread, ConversationStore& store, const StoreKeeping& keeping,
                ServeMetrics& metrics, std::shared_ptr<spdlog::logger> log);

}  // namespace loci
