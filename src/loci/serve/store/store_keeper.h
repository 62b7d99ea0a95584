// SPDX-License-Identifier: Apache-2.0
// Upkeep of the store while a server runs: at its start and every few minutes it deletes what exceeds the
// limits, and tells /metrics the store's size.
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

// Logs whose conversations were deleted to make room for newer ones (StoreOptions::made_room): a tenant's
// first deletion at once, later ones once in a period, together. Thread-safe.
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

// Tells which servers have surely ended. One look at the database tells too little: after its restart nobody
// holds a lock there, and while it stands still all members' rows grow old. A server has surely ended if it
// seemed so at every look for five seconds, none of which was missed or took longer than a second; two
// seconds are enough where its row says so, which has been silent for longer than members are by then.
// Thread-compatible.
class EndedServers {
 public:
  // A look began and ended at these times, and these servers seemed to have ended, some of them by their rows
  // (`silent`). Returns those that surely have.
  std::vector<std::string> look(Nanos begin, Nanos end, const std::vector<std::string>& seem,
                                const std::vector<std::string>& silent);
  // Some server seemed to have ended at the last look, and it is not sure yet.
  bool is_in_doubt() const { return is_in_doubt_; }

 private:
  std::map<std::string, Nanos> since_;  // of those who seemed to have ended at the last look
  Nanos last_ = 0;                      // its end
  bool is_in_doubt_ = false;
};

// Every `period`, and four times as often while it is not sure of a server, on a thread of the store's until
// these end: responses in progress whose server has surely ended fail (ConversationStore::fail_interrupted).
// `ended` is called there. For a store that servers share.
void fail_interrupted_responses(WorkerPool& store_thread, ConversationStore& store, Nanos period,
                                std::function<std::vector<std::string>()> ended,
                                std::shared_ptr<spdlog::logger> log);

// Works on `store_thread` until that ends, a bounded part at a time, so that turns are committed in
// between. What it is given outlives `store_thread`; errors are logged, and it tries again. Returns what has
// it work at once, where it would wait for its time: thread-safe, and nothing once `store_thread` has ended.
std::function<void()> keep_store(WorkerPool& store_thread, ConversationStore& store,
                                 const StoreKeeping& keeping, ServeMetrics& metrics,
                                 std::shared_ptr<spdlog::logger> log);

}  // namespace loci
