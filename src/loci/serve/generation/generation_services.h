// SPDX-License-Identifier: Apache-2.0
// What every generation of a server uses.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "loci/base/clock.h"
#include "loci/serve/generation/ask_for_prefill.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/history/token_history.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/tenants/tenant_limiter.h"
#include "loci/serve/wire/unknown_fields.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

// Longer prompts are submitted to the engine by a worker: their keys would hold up the network thread.
inline constexpr std::size_t kTokensSubmittedHere = 16'384;
// Between two attempts to store what a client no longer waits for: a turn, or the end of one that failed.
inline constexpr auto kStorePause = std::chrono::milliseconds(500);

// All that it refers to outlives the server. The atomics: any thread.
struct GenerationServices {
  WorkerPool& workers;
  WorkerPool& store_thread;  // calls of the conversation store are made there, several at once
  TenantLimiter& limiter;    // calls and generations hold tickets of it
  TokenHistory& history;
  ServeMetrics& metrics;
  const Clock& clock;
  std::shared_ptr<spdlog::logger> log;
  std::optional<Nanos> time_limit;  // of a whole generation
  // A stream that has said nothing for so long gets a comment: clients and proxies take one without bytes for
  // dead (nginx after a minute, Node's fetch after five), and a long prompt on a CPU takes longer.
  Nanos quiet_limit = 10 * kNanosPerSecond;
  AskForPrefill ask_for_prefill{};  // null: this server reads no state from others. Set before `served`
  std::atomic<const ServedModel*> served{nullptr};  // null: the model is still loading
  std::atomic<bool> draining{false};
  std::atomic<bool> stops_at_once{false};  // generations that end from now on were cut off by the server
  UnknownFieldLog unknown_fields;
  // Both are Counted, and a graceful stop waits for them:
  std::atomic<std::size_t> open_work{0};  // generations and their commits, whether a client waits or not
  std::atomic<std::size_t> handed{0};     // requests that await prompts from another member
};

}  // namespace loci
