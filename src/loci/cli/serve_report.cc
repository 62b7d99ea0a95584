// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/serve_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/options/option.h"
#include "loci/cli/paths.h"
#include "loci/serve/store/open_store.h"

namespace loci {
namespace {

// Three columns; the flags that change a row stand in the last.
class Table {
 public:
  void row(std::string name, std::string value, std::string flags = "") {
    if (!flags.empty()) width_ = std::max(width_, value.size());
    rows_.push_back({std::move(name), std::move(value), std::move(flags)});
  }
  std::string text() const {
    std::string out;
    for (const Row& row : rows_) {
      out += row.flags.empty() ? fmt::format("  {:<15}{}\n", row.name, row.value)
                               : fmt::format("  {:<15}{:<{}}   {}\n", row.name, row.value, width_, row.flags);
    }
    return out;
  }
  // A member for each row.
  void add_to(LogLine& line) const {
    for (const Row& row : rows_) {
      if (row.name.empty()) continue;  // more of the row before
      std::string name = row.name;
      std::replace(name.begin(), name.end(), ' ', '_');
      line.text(name, row.value);
    }
  }

 private:
  struct Row {
    std::string name, value, flags;
  };
  std::vector<Row> rows_;
  std::size_t width_ = 0;
};

// The tokens of a sequence that all groups without window hold.
std::uint64_t sequence_tokens(const CoreConfig& core) {
  std::uint64_t blocks = UINT32_MAX;
  for (const CoreGroup& group : core.groups) {
    if (group.window == 0) blocks = std::min<std::uint64_t>(blocks, group.block_count);
  }
  return blocks * kBlockTokens;
}

void add_state(const LoadedConfiguration& loaded, Table& table) {
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
              "--device-memory");
    return;
  }
  table.row("device memory", fmt::format("{} for state ({})", format_bytes(bytes), loaded.pool_reason),
            "--device-memory");
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

std::string describe_keeping(const ServeFlags& flags) {
  const char* saved = flags.save == "through" ? "saved as it fills" : "saved before it is evicted";
  return fmt::format("{}, {}", saved,
                     flags.state_ttl ? "at rest for at most " + exact_duration(*flags.state_ttl)
                                     : "for as long as there is room");
}

std::string describe_conversations(const ServeFlags& flags) {
  const std::string where = flags.store.value_or(default_store_path());
  if (where.empty()) return "not stored";
  std::string out = describe_store(where);
  if (flags.store_age) out += ", at rest for at most " + exact_duration(*flags.store_age);
  if (flags.store_size) out += ", at most " + format_bytes(*flags.store_size);
  return out;
}

Table configuration_table(const ServeFlags& flags, const LoadedConfiguration& loaded,
                          const ServedModel& served) {
  const ModelSpec& spec = served.model->spec;
  const CoreConfig& core = loaded.core;
  const BackendInfo& backend = loaded.backend;
  const HttpLimits& limits = flags.http.limits;
  Table table;
  table.row("model", fmt::format("{} ({}, {} layers, vocabulary {})", served.model->id, spec.family,
                                 spec.layer_count(), format_count(spec.vocabulary)));
  if (served.any_name || !served.aliases.empty()) {
    const std::string names = fmt::format("{}", fmt::join(served.aliases, ", "));
    table.row("also called", served.any_name ? names + (names.empty() ? "anything" : ", anything") : names,
              "--alias --any-model");
  }
  table.row("file", served.model->path);
  for (const std::string& note : served.model->notes) table.row("quantised", note, "--quantize");
  table.row("weights", format_bytes(backend.weight_bytes));
  table.row("device", loaded.device, "--device");
  table.row("compute", backend.description, backend.name == "cpu" ? "--threads --cpu" : "--deterministic");
  table.row("context", format_count(core.context_tokens) + " tokens", "--context");
  add_state(loaded, table);
  table.row("host memory", loaded.host_tier, "--host-memory");
  table.row("disk", loaded.disk_tier, "--disk --disk-io --io-limit");
  if (!flags.shared.empty()) table.row("shared", loaded.shared_tier, "--shared --shared-ttl");
  if (flags.hidden != "off") table.row("hidden states", loaded.hidden, "--hidden");
  table.row("state kept", describe_keeping(flags), "--save --state-ttl");
  table.row("policies",
            fmt::format("eviction {}, admission {}, restore {}", core.eviction, core.admission, core.restore),
            "--eviction --admission --restore");
  table.row("sampling", loaded.sampling, "--temperature --top-p --top-k --min-p --repeat-penalty");
  table.row("costs", loaded.costs_source, "--profile");
  table.row("batch",
            fmt::format("{} tokens a pass, {} beside replies, {} requests running, {} waiting",
                        format_count(core.max_batch_tokens),
                        core.pass_time == kNever ? "as many" : format_duration(core.pass_time),
                        format_count(core.max_running), format_count(core.max_queued)),
            "--max-batch-tokens --pass-time --max-running --max-queued");
  table.row("requests",
            fmt::format("body {}, header {}, {} connections", format_bytes(limits.body_bytes_max),
                        format_bytes(limits.header_bytes_max), format_count(limits.connections_max)),
            "--max-body --max-header --max-connections");
  table.row("times",
            fmt::format("reply {}, idle {}, stop {}",
                        flags.request_timeout ? format_duration(*flags.request_timeout) : "unlimited",
                        format_duration(limits.idle_timeout), format_duration(flags.drain_timeout)),
            "--request-timeout --idle-timeout --drain-timeout");
  if (flags.http.tls.given()) table.row("certificate", flags.http.tls.certificate, "--tls-cert --tls-key");
  table.row("conversations", describe_conversations(flags), "--store --store-age --store-size");
  if (!flags.event_log.empty()) table.row("event log", flags.event_log, "--event-log");
  return table;
}

std::string url_of(const HttpServer::Options& http) {
  const bool every = http.host == "0.0.0.0" || http.host == "::";
  std::string name = every ? "127.0.0.1" : http.host;
  if (name.find(':') != std::string::npos) name = "[" + name + "]";
  return fmt::format("{}://{}:{}", http.tls.given() ? "https" : "http", name, http.port);
}

}  // namespace

LogLine configuration_line(const ServeFlags& flags, const LoadedConfiguration& loaded,
                           const ServedModel& served) {
  LogLine line("configuration");
  line.text("version", kVersion);
  configuration_table(flags, loaded, served).add_to(line);
  return line;
}

LogLine ready_line(const HttpServer::Options& http, Nanos loading) {
  return LogLine("ready").text("url", url_of(http)).duration("loading", loading);
}

std::string describe_configuration(const ServeFlags& flags, const LoadedConfiguration& loaded,
                                   const ServedModel& served) {
  const CoreConfig& core = loaded.core;
  std::string out = fmt::format("Loci {}\n{}", kVersion, configuration_table(flags, loaded, served).text());
  const std::uint64_t tokens = sequence_tokens(core);
  if (tokens < core.context_tokens) {
    out += fmt::format(
        "  note: state of {} tokens fits, less than a context of {}: longer requests are refused\n",
        format_count(tokens), format_count(core.context_tokens));
  }
  return out;
}

std::string describe_ready(const HttpServer::Options& http, const ServedModel& served, Nanos loading) {
  const std::string url = url_of(http);
  const char* path = served.model->chat_template ? "/v1/chat/completions" : "/v1/completions";
  const char* body = served.model->chat_template
                         ? R"({"messages": [{"role": "user", "content": "Hello"}], "stream": true})"
                         : R"({"prompt": "Hello", "max_tokens": 32, "stream": true})";
  return fmt::format(
      "ready in {}: {}\n  curl -N {}{} -H 'Content-Type: application/json' \\\n    -d '{}'\n  loci chat {}\n",
      format_duration(loading), url, url, path, body, url);
}

}  // namespace loci
