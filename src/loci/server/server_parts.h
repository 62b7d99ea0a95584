// SPDX-License-Identifier: Apache-2.0
// All parts of a server, and the order in which they are destroyed.
#pragma once

#include <spdlog/logger.h>

#include <functional>
#include <memory>

#include "loci/base/clock.h"
#include "loci/base/version.h"
#include "loci/cluster/limits/cluster_limits.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/membership.h"
#include "loci/compute/backend.h"
#include "loci/engine/run/engine.h"
#include "loci/memory/disk/disk_keeper.h"
#include "loci/model/model.h"
#include "loci/serve/api/api.h"
#include "loci/serve/call/services.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/http/server.h"
#include "loci/serve/store/store_claim.h"
#include "loci/serve/store/store_keeper.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/tenants/tenant_limiter.h"
#include "loci/serve/workers/worker_pool.h"
#include "loci/server/conversations.h"
#include "loci/server/memory_keeper.h"
#include "loci/server/open_traces.h"
#include "loci/server/peer_state.h"
#include "loci/server/server_config.h"

namespace loci {

// A part that is null has not been made yet. The destructor stops a thread before the parts that it uses.
struct ServerParts {
  ServerConfig config;
  SystemClock clock;
  std::shared_ptr<spdlog::logger> log;
  ServeMetrics metrics{kVersion};
  Traces traces;  // outlives all that has spans
  std::unique_ptr<Model> model;
  std::unique_ptr<Backend> backend;
  PeerState peers;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DiskKeeper> disk_keeper;  // uses the engine's store
  std::unique_ptr<MemoryKeeper> memory_keeper;
  ServedModel served;
  Tenants tenants;
  std::unique_ptr<ClusterLimits> cluster_limits;  // null: the server counts tenants' limits alone
  TenantLimiter limiter{clock};
  PublicPrefixes public_prefixes;
  TokenHistory history;
  StoreClaim store_claim;  // is destroyed after the store
  std::unique_ptr<QuotaLog> quota_log;
  std::unique_ptr<ConversationStore> store;
  std::function<void()> expire_soon = [] {};  // the store's keeper; is set before anybody writes
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<WorkerPool> workers;
  std::unique_ptr<WorkerPool> store_thread;
  std::unique_ptr<ApiServices> services;
  std::unique_ptr<Api> api;
  std::unique_ptr<MemberTable> members;    // null once the server has joined
  std::shared_ptr<Membership> membership;  // null: the server belongs to no cluster

  ~ServerParts() {
    membership.reset();
    if (http) http->stop(0);
    if (cluster_limits) cluster_limits->stop();  // who waits for it is the network thread's
    workers.reset();
    if (services && services->turn_claims) services->turn_claims->stop();
    end_conversations(store_thread, store.get(), *log);
    http.reset();
    disk_keeper.reset();
    memory_keeper.reset();
    peers.stop();
    engine.reset();
  }
};

}  // namespace loci
