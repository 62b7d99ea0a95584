// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "loci/base/memory_pages.h"
#include "loci/policy/restore_plan.h"
#include "loci/serve/telemetry/core_metrics.h"

namespace loci {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Families whose numbers are kept elsewhere and are only read at a scrape.
class Snapshot {
 public:
  void counter(const char* name, const char* help, double value, const char* label = nullptr,
               const char* label_value = nullptr) {
    ClientMetric metric;
    metric.counter.value = value;
    if (label != nullptr) metric.label.push_back({label, label_value});
    add(name, help, MetricType::Counter, metric);
  }
  void gauge(const char* name, const char* help, double value, const char* label = nullptr,
             const char* label_value = nullptr) {
    ClientMetric metric;
    metric.gauge.value = value;
    if (label != nullptr) metric.label.push_back({label, label_value});
    add(name, help, MetricType::Gauge, metric);
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  void add(const char* name, const char* help, MetricType type, const ClientMetric& metric) {
    if (families_.empty() || families_.back().name != name) {
      MetricFamily family;
      family.name = name;
      family.help = help;
      family.type = type;
      families_.push_back(std::move(family));
    }
    families_.back().metric.push_back(metric);
  }

  std::vector<MetricFamily> families_;
};

void add_engine(const EngineSnapshot& engine, Snapshot& out) {
  const CoreStats& stats = engine.stats;
  std::uint64_t total_bytes = 0, used_bytes = 0, held_bytes = 0, room_bytes = 0;
  for (std::size_t group = 0; group < stats.pools.size(); ++group) {
    const PoolStats& pool = stats.pools[group];
    total_bytes += pool.blocks_total * engine.block_bytes[group];
    used_bytes += (pool.blocks_total - pool.blocks_free) * engine.block_bytes[group];
    held_bytes += pool.blocks_held * engine.block_bytes[group];
    room_bytes += pool.blocks_room * engine.block_bytes[group];
  }
  out.gauge("loci_requests_running", "Requests in the batch", stats.running);
  out.gauge("loci_requests_paused", "Requests whose clients do not read what they say", stats.paused);
  out.gauge("loci_requests_queued", "Requests that wait for admission", stats.queued);
  const char* blocks = "Blocks of state in device memory; cached ones hold state that nobody needs now";
  out.gauge("loci_blocks", blocks, stats.blocks_total, "state", "total");
  out.gauge("loci_blocks", blocks, stats.blocks_free, "state", "free");
  out.gauge("loci_blocks", blocks, stats.blocks_pinned, "state", "pinned");
  const std::uint32_t used = stats.blocks_total - stats.blocks_free;
  const std::uint32_t cached = used > stats.blocks_pinned ? used - stats.blocks_pinned : 0;
  out.gauge("loci_blocks", blocks, cached, "state", "cached");
  const char* state =
      "Device memory for state; on a CPU the system holds no more than held for it, and room bounds what is "
      "kept";
  out.gauge("loci_state_bytes", state, static_cast<double>(total_bytes), "state", "total");
  out.gauge("loci_state_bytes", state, static_cast<double>(used_bytes), "state", "used");
  out.gauge("loci_state_bytes", state, static_cast<double>(held_bytes), "state", "held");
  out.gauge("loci_state_bytes", state, static_cast<double>(room_bytes), "state", "room");
  out.gauge("loci_block_tokens", "Tokens in a block", engine.block_tokens);
  out.gauge("loci_weight_bytes", "Memory for the model's weights", static_cast<double>(engine.weight_bytes));
  out.counter("loci_prompt_tokens_total", "Tokens of prompts",
              static_cast<double>(stats.tokens_prompt_total));
  out.counter("loci_prompt_tokens_cached_total", "Tokens of prompts whose state was there, and came",
              static_cast<double>(stats.tokens_cached_total));
  out.counter("loci_generated_tokens_total", "Tokens of replies",
              static_cast<double>(stats.tokens_generated_total));
  out.counter("loci_computed_tokens_total", "Rows of all passes",
              static_cast<double>(stats.tokens_computed_total));
  out.counter("loci_evicted_blocks_total", "Blocks evicted", static_cast<double>(stats.evictions_total));
  out.counter("loci_suspensions_total", "Requests suspended for want of blocks",
              static_cast<double>(stats.suspensions_total));
  out.counter("loci_rejections_total", "Requests refused because the queue was full or the server stopping",
              static_cast<double>(stats.rejections_total));
  out.counter("loci_passes_total", "Passes through the model", static_cast<double>(stats.passes_total));
  out.counter("loci_passes_ahead_total", "Passes planned while another was in flight",
              static_cast<double>(stats.passes_ahead_total));
  out.counter("loci_wasted_spans_total", "Spans that went on behind what had stopped or failed",
              static_cast<double>(stats.spans_wasted_total));
}

// The process's own figures under the names that every exporter uses.
void add_process(Snapshot& out) {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size_pages = 0;
  std::uint64_t resident_pages = 0;
  if (statm >> size_pages >> resident_pages) {
    const std::uint64_t page = page_bytes();
    out.gauge("process_resident_memory_bytes", "Resident memory", static_cast<double>(resident_pages * page));
    out.gauge("process_virtual_memory_bytes", "Virtual memory", static_cast<double>(size_pages * page));
  }
  timespec cpu{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) {
    out.counter("process_cpu_seconds_total", "User and system CPU time",
                static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9);
  }
}

}  // namespace

prometheus::Histogram* ServeMetrics::histogram(const char* name, const char* help, double first,
                                               double factor, int count) {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = first; count > 0; --count, bound *= factor) bounds.push_back(bound);
  return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add({}, bounds);
}

ServeMetrics::ServeMetrics(std::string_view version) {
  const auto counter = [&](const char* name, const char* help) {
    return &prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
  };
  const auto gauge = [&](const char* name, const char* help) {
    return &prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
  };
  requests_ = counter("loci_http_requests_total", "HTTP requests answered, by route and status code");
  tenant_requests_ =
      counter("loci_tenant_requests_total", "HTTP requests answered, by tenant and status code");
  tenant_tokens_ = counter("loci_tenant_tokens_total",
                           "Tokens of tenants: of prompts, of those the cached ones, and generated ones");
  disconnects_ =
      &counter("loci_client_disconnects_total", "Clients that left before their reply ended")->Add({});
  tls_failures_ =
      &counter("loci_tls_handshake_failures_total", "Connections that ended in their TLS handshake")->Add({});
  received_bytes_ = &counter("loci_http_received_bytes_total", "Bytes of request bodies")->Add({});
  sent_bytes_ = &counter("loci_http_sent_bytes_total", "Bytes sent")->Add({});
  connections_ = &gauge("loci_http_connections", "Open connections")->Add({});
  gauge("loci_build_info", "1; the version is a label")->Add({{"version", std::string(version)}}).Set(1);
  gauge("process_start_time_seconds", "Start of the process since 1970")
      ->Add({})
      .Set(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  request_seconds_ = histogram("loci_http_request_duration_seconds",
                               "From a request's last byte to its reply's end", 0.001, 2, 20);
  queue_seconds_ = histogram("loci_queue_seconds", "From submission to admission", 0.0005, 2, 20);
  first_token_seconds_ = histogram("loci_time_to_first_token_seconds",
                                   "From a request's last byte to its first token", 0.001, 1.6, 28);
  inter_token_seconds_ =
      histogram("loci_inter_token_seconds", "Between two tokens of a choice", 0.0005, 1.5, 24);
  generation_seconds_ =
      histogram("loci_generation_seconds", "From a request's last byte to its last token", 0.004, 1.8, 24);
  restore_error_ = &prometheus::BuildHistogram()
                        .Name("loci_restore_error_ratio")
                        .Help("How far the predicted time to the first token was off, over the real one")
                        .Register(registry_);
  prompt_tokens_ = histogram("loci_request_prompt_tokens", "Tokens of a request's prompts", 1, 2, 21);
  generated_tokens_ = histogram("loci_request_generated_tokens", "Tokens of a request's choices", 1, 2, 21);
  store_commit_seconds_ =
      histogram("loci_store_commit_seconds", "Until a turn is durable, its fsync with it", 0.00025, 2, 16);
  store_bytes_ =
      &gauge("loci_store_bytes", "What the conversation store holds, counted every few minutes")->Add({});
  store_expired_ = &counter("loci_store_expired_total",
                            "Conversations and responses deleted by age, size or a tenant's quota")
                        ->Add({});
}

void ServeMetrics::restored(const ContextSources& sources, Nanos took) {
  const bool declined = sources.computed[static_cast<std::size_t>(MissReason::kTooSlow)] > 0;
  const char* from = sources.shared > 0 ? "shared"
                     : sources.disk > 0 ? "disk"
                     : sources.host > 0 ? "host"
                     : declined         ? "computed"
                                        : nullptr;
  if (from == nullptr || took <= 0) return;
  const prometheus::Histogram::BucketBoundaries bounds = {0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2};
  const auto off = static_cast<double>(std::abs(sources.restore.planned - took));
  restore_error_
      ->Add({{"plan", std::string(restore_rule_name(sources.restore.rule))}, {"from", from}}, bounds)
      .Observe(off / static_cast<double>(took));
}

// A label for each key that was ever used could be too many for who reads them.
std::string ServeMetrics::tenant_label(std::string_view tenant) {
  const MutexLock lock(tenants_mutex_);
  if (tenants_.contains(tenant)) return std::string(tenant);
  if (tenants_.size() >= kTenantLabelsMax) return "other";
  return *tenants_.emplace(tenant).first;
}

void ServeMetrics::tenant_request_done(std::string_view tenant, int status) {
  if (!by_tenant_) return;
  tenant_requests_->Add({{"tenant", tenant_label(tenant)}, {"code", std::to_string(status)}}).Increment();
}

void ServeMetrics::tenant_tokens(std::string_view tenant, std::uint64_t prompt, std::uint64_t cached,
                                 std::uint64_t generated) {
  if (!by_tenant_) return;
  const std::string label = tenant_label(tenant);
  for (const auto& [kind, count] : {std::pair<const char*, std::uint64_t>("prompt", prompt),
                                    {"cached", cached},
                                    {"generated", generated}}) {
    tenant_tokens_->Add({{"tenant", label}, {"kind", kind}}).Increment(static_cast<double>(count));
  }
}

void ServeMetrics::request_done(std::string_view route, int status, Nanos duration) {
  requests_->Add({{"route", std::string(route)}, {"code", std::to_string(status)}}).Increment();
  request_seconds_->Observe(seconds(duration));
}

void ServeMetrics::generation_done(Nanos duration, std::uint64_t prompt_tokens,
                                   std::uint64_t generated_tokens) {
  generation_seconds_->Observe(seconds(duration));
  prompt_tokens_->Observe(static_cast<double>(prompt_tokens));
  generated_tokens_->Observe(static_cast<double>(generated_tokens));
}

std::string ServeMetrics::scrape(const std::optional<EngineSnapshot>& engine,
                                 std::uint64_t history_tokens_reused,
                                 const std::optional<TraceCounts>& traces) {
  std::vector<MetricFamily> families = registry_.Collect();
  if (engine) {
    for (MetricFamily& family : core_metrics(engine->stats)) families.push_back(std::move(family));
  }
  Snapshot snapshot;
  snapshot.gauge(
      "loci_ready",
      "1 while requests are taken: the model is loaded, nothing drains, no device is lost or stands still",
      engine && engine->is_ready ? 1 : 0);
  if (engine) add_engine(*engine, snapshot);
  snapshot.counter("loci_history_tokens_reused_total",
                   "Tokens of prompts taken as they were remembered, not tokenised again",
                   static_cast<double>(history_tokens_reused));
  if (traces) {
    const char* help = "Spans that the collector of traces took, and those that are lost";
    snapshot.counter("loci_trace_spans_total", help, static_cast<double>(traces->sent), "result", "sent");
    snapshot.counter("loci_trace_spans_total", help, static_cast<double>(traces->dropped), "result",
                     "dropped");
  }
  add_process(snapshot);
  for (MetricFamily& family : snapshot.take()) families.push_back(std::move(family));
  if (engine) {
    for (MetricFamily& family : tier_metrics(engine->tiers)) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace loci
