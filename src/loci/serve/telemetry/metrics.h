// SPDX-License-Identifier: Apache-2.0
// What /metrics tells, in Prometheus' text format. Names start with loci_; units come last.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/engine/core/core.h"
#include "loci/serve/telemetry/tier_metrics.h"
#include "loci/serve/telemetry/trace_exporter.h"

namespace loci {

// The engine's side of a scrape.
struct EngineSnapshot {
  CoreStats stats;
  std::array<std::uint64_t, kLayerGroupsMax> block_bytes{};  // of a block's part in each group
  std::uint32_t block_tokens = 0;
  std::uint64_t weight_bytes = 0;
  bool is_ready = false;  // requests are taken
  TierSnapshot tiers;
};

// Thread-safe.
class ServeMetrics {
 public:
  explicit ServeMetrics(std::string_view version);

  void request_done(std::string_view route, int status, Nanos duration);
  // Of a tenant, where tenants are told apart; the first kTenantLabelsMax by name, the rest as "other".
  static constexpr std::size_t kTenantLabelsMax = 64;
  void tell_tenants_apart() { by_tenant_ = true; }
  void tenant_request_done(std::string_view tenant, int status);
  void tenant_tokens(std::string_view tenant, std::uint64_t prompt, std::uint64_t cached,
                     std::uint64_t generated);
  void queued(Nanos duration) { queue_seconds_->Observe(seconds(duration)); }
  void first_token(Nanos duration) { first_token_seconds_->Observe(seconds(duration)); }
  // Of a prompt whose state a tier had, all or a part: what was predicted for the time from its admission to
  // its first token, and how long that took. By plan, and by the slowest tier from which something came.
  void restored(const ContextSources& sources, Nanos took);
  void next_token(Nanos duration) { inter_token_seconds_->Observe(seconds(duration)); }
  void generation_done(Nanos duration, std::uint64_t prompt_tokens, std::uint64_t generated_tokens);
  // A turn became durable; what the store holds; what went because of its limits.
  void turn_committed(Nanos duration) { store_commit_seconds_->Observe(seconds(duration)); }
  void store_size(std::uint64_t bytes) { store_bytes_->Set(static_cast<double>(bytes)); }
  void store_expired(std::uint64_t count) { store_expired_->Increment(static_cast<double>(count)); }
  void client_left() { disconnects_->Increment(); }
  void connections(std::size_t open) { connections_->Set(static_cast<double>(open)); }
  void tls_handshake_failed() { tls_failures_->Increment(); }
  void received(std::size_t bytes) { received_bytes_->Increment(static_cast<double>(bytes)); }
  void sent(std::size_t bytes) { sent_bytes_->Increment(static_cast<double>(bytes)); }

  // `engine` is absent until the model is loaded.
  // `history_tokens_reused`: see TokenHistory. `traces` is absent where nothing is traced.
  std::string scrape(const std::optional<EngineSnapshot>& engine, std::uint64_t history_tokens_reused,
                     const std::optional<TraceCounts>& traces = {});

 private:
  static double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }
  prometheus::Histogram* histogram(const char* name, const char* help, double first, double factor,
                                   int count);

  std::string tenant_label(std::string_view tenant);

  std::atomic<bool> by_tenant_{false};
  Mutex tenants_mutex_;
  std::set<std::string, std::less<>> tenants_ GUARDED_BY(tenants_mutex_);  // that have a label
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>* tenant_requests_;
  prometheus::Family<prometheus::Counter>* tenant_tokens_;
  prometheus::Family<prometheus::Counter>* requests_;
  prometheus::Family<prometheus::Histogram>* restore_error_;
  prometheus::Counter* disconnects_;
  prometheus::Counter* tls_failures_;
  prometheus::Counter* received_bytes_;
  prometheus::Counter* sent_bytes_;
  prometheus::Gauge* connections_;
  prometheus::Histogram* request_seconds_;
  prometheus::Histogram* queue_seconds_;
  prometheus::Histogram* first_token_seconds_;
  prometheus::Histogram* inter_token_seconds_;
  prometheus::Histogram* generation_seconds_;
  prometheus::Histogram* prompt_tokens_;
  prometheus::Histogram* generated_tokens_;
  prometheus::Histogram* store_commit_seconds_;
  prometheus::Gauge* store_bytes_;
  prometheus::Counter* store_expired_;
};

}  // namespace loci
