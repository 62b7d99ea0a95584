// SPDX-License-Identifier: Apache-2.0
#include "loci/server/server_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "loci/base/units.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/store/open_store.h"

namespace loci {
namespace {

struct Table {
  std::vector<ReportRow> rows;

  void row(std::string name, std::string value, std::vector<std::string> options = {}) {
    rows.push_back({std::move(name), std::move(value), std::move(options)});
  }
};

// The tokens of a sequence that all groups without window hold.
std::uint64_t sequence_tokens(const CoreConfig& core) {
  std::uint64_t blocks = UINT32_MAX;
  for (const CoreGroup& group : core.groups) {
    if (group.window == 0) blocks = std::min<std::uint64_t>(blocks, group.block_count);
  }
  return blocks * kBlockTokens;
}

void add_state(const LoadedEngine& loaded, Table& table) {
  const BackendInfo& backend = loaded.backend;
  const std::vector<CoreGroup>& groups = loaded.core.groups;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    bytes += groups[i].block_count * backend.groups[i].block_bytes;
  }
  table.row("state",
            fmt::format("{} a token, {} a block of {}", format_bytes(backend.block_bytes / kBlockTokens),
                        format_bytes(backend.block_bytes), kBlockTokens));
  if (groups.size() == 1 && groups[0].window == 0) {
    const std::uint64_t tokens = std::uint64_t{groups[0].block_count} * kBlockTokens;
    table.row("device memory",
              fmt::format("{} for {} tokens of state ({})", format_bytes(bytes), format_count(tokens),
                          loaded.pool_reason),
              {"device_memory", "yield_memory"});
    return;
  }
  table.row("device memory", fmt::format("{} for state ({})", format_bytes(bytes), loaded.pool_reason),
            {"device_memory", "yield_memory"});
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string sees =
        groups[i].window == 0 ? "all tokens" : fmt::format("a window of {}", format_count(groups[i].window));
    const std::uint64_t blocks = groups[i].block_count;
    table.row("",
              fmt::format("{} layers see {}: {} for {} blocks of {} tokens", backend.groups[i].layers.size(),
                          sees, format_bytes(blocks * backend.groups[i].block_bytes), format_count(blocks),
                          kBlockTokens));
  }
}

std::string describe_keeping(const ServerConfig& config) {
  const std::string& save = config.policies.save;
  const char* saved = save == "through" ? "saved as it fills"
                      : save == "ahead" ? "saved before it is evicted"
                                        : "not saved to slower tiers";
  return fmt::format("{}, {}", saved,
                     config.state_ttl ? "for at most " + exact_duration(*config.state_ttl) + " without use"
                                      : "for as long as there is room");
}

std::string describe_conversations(const ServerConfig& config) {
  const std::string where = config.store.value_or("");
  if (where.empty()) return "not stored";
  std::string out = describe_store(where);
  if (config.store_age) out += ", for at most " + exact_duration(*config.store_age) + " without use";
  if (config.store_size) out += ", at most " + format_bytes(*config.store_size);
  return out;
}

// So that who forgot the keys sees it.
std::string describe_clients(const ServerConfig& config) {
  std::string keys = "everybody who reaches the port, without a key";
  if (!config.keys.empty()) {
    const bool has_others = !config.keys.keys.empty() || !config.keys.operator_keys.empty();
    keys = "those with a key of ";
    if (has_others) keys += "the environment";
    if (!config.keys.file.empty()) keys += (has_others ? " or of " : "") + config.keys.file;
  }
  return fmt::format("{}; {} may read /metrics", keys,
                     config.metrics_access == Access::kOperator ? "operators" : "anyone");
}

std::vector<ReportRow> rows_of(const ServerConfig& config, const LoadedEngine& loaded,
                               const ServedModel& served) {
  const ModelSpec& spec = served.model->spec;
  const CoreConfig& core = loaded.core;
  const BackendInfo& backend = loaded.backend;
  const HttpLimits& limits = config.http.limits;
  Table table;
  table.row("model", fmt::format("{} ({}, {} layers, vocabulary {})", served.model->id, spec.family,
                                 spec.layer_count(), format_count(spec.vocabulary)));
  if (served.any_name || !served.aliases.empty()) {
    const std::string names = fmt::format("{}", fmt::join(served.aliases, ", "));
    table.row("also called", served.any_name ? names + (names.empty() ? "anything" : ", anything") : names,
              {"alias", "any_model"});
  }
  table.row("file", served.model->path);
  for (const std::string& note : served.model->notes) table.row("quantised", note, {"quantize"});
  table.row("weights", format_bytes(backend.weight_bytes));
  table.row("device", loaded.device, {"device"});
  table.row("compute", backend.description,
            backend.name == "cpu" ? std::vector<std::string>{"threads", "cpu"}
                                  : std::vector<std::string>{"deterministic"});
  table.row("context", format_count(core.context_tokens) + " tokens", {"context"});
  add_state(loaded, table);
  table.row("host memory", loaded.host_tier, {"host_memory"});
  table.row("disk", loaded.disk_tier, {"disk", "disk_io", "io_limit"});
  if (!config.shared.empty()) table.row("shared", loaded.shared_tier, {"shared", "shared_ttl"});
  if (loaded.peer_port != 0) {
    table.row("peers",
              fmt::format("members of the cluster read this server's state on port {}", loaded.peer_port),
              {"peer_port"});
  }
  if (config.hidden != "off") table.row("hidden states", loaded.hidden, {"hidden"});
  table.row("state kept", describe_keeping(config), {"save", "state_ttl"});
  table.row("policies",
            fmt::format("eviction {}, admission {}, restore {}{}", core.eviction, core.admission,
                        core.restore, config.baseline ? fmt::format(" (those of {})", *config.baseline) : ""),
            {"eviction", "admission", "restore", "baseline"});
  if (!core.reuse) table.row("reuse", "none: a request uses no other one's state", {"reuse"});
  table.row("sampling", loaded.sampling, {"temperature", "top_p", "top_k", "min_p", "repeat_penalty"});
  table.row("costs", loaded.costs_source, {"profile"});
  table.row(
      "batch",
      fmt::format("at most {} tokens a pass, {} beside replies; at most {} requests running, {} waiting",
                  format_count(core.max_batch_tokens),
                  core.pass_time == kNever ? "as many" : format_duration(core.pass_time),
                  format_count(core.max_running), format_count(core.max_queued)),
      {"max_batch_tokens", "pass_time", "max_running", "max_queued"});
  table.row("requests",
            fmt::format("bodies of at most {}, headers of at most {}, {} connections",
                        format_bytes(limits.body_bytes_max), format_bytes(limits.header_bytes_max),
                        format_count(limits.connections_max)),
            {"max_body", "max_header", "max_connections"});
  table.row("times",
            fmt::format("a reply may take {}, a pass {}, a connection idle for {}, a stop {}",
                        config.request_timeout ? format_duration(*config.request_timeout) : "unlimited",
                        loaded.stall_limit > 0 ? format_duration(loaded.stall_limit) : "unlimited",
                        format_duration(limits.idle_timeout), format_duration(config.drain_timeout)),
            {"request_timeout", "stall_limit", "idle_timeout", "drain_timeout"});
  table.row("clients", describe_clients(config), {"api_keys", "metrics_access"});
  if (!config.public_prefix.empty()) table.row("public prefix", config.public_prefix, {"public"});
  if (config.http.tls.given()) table.row("certificate", config.http.tls.certificate, {"tls_cert", "tls_key"});
  table.row("conversations", describe_conversations(config), {"store", "store_age", "store_size"});
  if (!config.event_log.empty()) table.row("event log", config.event_log, {"event_log"});
  return std::move(table.rows);
}

std::string url_of(const HttpServer::Options& http, std::uint16_t port) {
  const std::string name = is_any_address(http.host) ? "127.0.0.1" : http.host;
  return fmt::format("{}://{}", http.tls.given() ? "https" : "http", authority_of(name, port));
}

}  // namespace

ServerReport server_report(const ServerConfig& config, const LoadedEngine& loaded, const ServedModel& served,
                           std::uint16_t port, Nanos loading) {
  ServerReport report{.rows = rows_of(config, loaded, served),
                      .note = {},
                      .url = url_of(config.http, port),
                      .has_chat_template = served.model->chat_template.has_value(),
                      .has_page = config.page,
                      .has_keys = !config.keys.empty(),
                      .loading = loading};
  const std::uint64_t tokens = sequence_tokens(loaded.core);
  if (tokens < loaded.core.context_tokens) {
    report.note = fmt::format(
        "there is room for the state of {} tokens, fewer than the context of {}: longer requests are {}",
        format_count(tokens), format_count(loaded.core.context_tokens),
        config.context_overflow == "truncate" ? "cut" : "refused");
  }
  return report;
}

}  // namespace loci
