// SPDX-License-Identifier: Apache-2.0
// What is done to the store while a server runs: what is over the limits is deleted, at start and every
// few minutes, and /metrics is told its size.
#pragma once

#include <spdlog/logger.h>

#include <memory>

#include "loci/base/clock.h"
#include "loci/serve/metrics.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/worker_pool.h"

namespace loci {

struct StoreKeeping {
  StoreLimits limits;
  Nanos period = 300 * kNanosPerSecond;
};

// Works on `store_thread` until that ends, a bounded part at a time, so that turns are committed in
// between. What it is given outlives `store_thread`; errors are logged, and it tries again.
void keep_store(WorkerPool& store_thread, ConversationStore& store, const StoreKeeping& keeping,
                ServeMetrics& metrics, std::shared_ptr<spdlog::logger> log);

}  // namespace loci
