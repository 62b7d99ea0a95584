// SPDX-License-Identifier: Apache-2.0
// What every endpoint may use.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "loci/base/clock.h"
#include "loci/serve/history/token_history.h"
#include "loci/serve/metrics.h"
#include "loci/serve/page_guard.h"
#include "loci/serve/request/api_error.h"
#include "loci/serve/request/unknown_fields.h"
#include "loci/serve/responses/turn_claims.h"
#include "loci/serve/router.h"
#include "loci/serve/served_model.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/tenants/public_prefixes.h"
#include "loci/serve/tenants/tenant_limiter.h"
#include "loci/serve/tenants/tenants.h"
#include "loci/serve/worker_pool.h"

namespace loci {

struct ApiOptions {
  PageGuard pages;                  // which web pages may use the server
  std::optional<Nanos> time_limit;  // of a whole generation
  bool access_log = true;
  Access metrics_access = Access::kOpen;  // of /metrics, which tells of all tenants together
};

// Threads that wait for the store's disk or server: turns that wait together are made durable together.
inline constexpr unsigned kStoreThreads = 32;

// All of it outlives the server. set_...(): any thread.
struct ApiServices {
  ApiOptions options;
  WorkerPool& workers;
  WorkerPool& store_thread;  // calls of `store` are made there, several at once
  ConversationStore* store;  // null: nothing is stored, and what needs the store is refused
  Tenants& tenants;
  TenantLimiter& limiter;  // calls and generations hold tickets of it
  PublicPrefixes& public_prefixes;
  TokenHistory& history;
  ServeMetrics& metrics;
  const Clock& clock;
  std::shared_ptr<spdlog::logger> log;
  std::atomic<const ServedModel*> served{nullptr};  // null: the model is still loading
  ConversationLocks conversation_locks;             // the network thread's
  std::shared_ptr<TurnClaims> turn_claims;          // null: nobody shares the store
  std::atomic<bool> draining{false};
  std::atomic<bool> stops_at_once{false};  // what ends now was cut off by the server
  UnknownFieldLog unknown_fields;
  std::atomic<std::size_t> open_work{0};  // generations and their commits; see OpenWork

  // What keeps a request that needs the model from being served now.
  std::optional<ApiError> not_ready() const;
};

// What a new request gets once the server drains: 503 with Retry-After.
ApiError stopping_error();

// Held while something runs that a graceful stop waits for, whether a client waits for it or not.
class OpenWork {
 public:
  explicit OpenWork(ApiServices& services) : services_(services) { services_.open_work.fetch_add(1); }
  ~OpenWork() { services_.open_work.fetch_sub(1); }
  OpenWork(const OpenWork&) = delete;
  OpenWork& operator=(const OpenWork&) = delete;

 private:
  ApiServices& services_;
};

}  // namespace loci
