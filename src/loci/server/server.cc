// SPDX-License-Identifier: Apache-2.0
#include "loci/server/server.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "loci/base/units.h"
#include "loci/cluster/member.h"
#include "loci/serve/api/loci/warm_prefix.h"
#include "loci/serve/files/text_file.h"
#include "loci/server/conversations.h"
#include "loci/server/join_cluster.h"
#include "loci/server/load_engine.h"
#include "loci/server/open_members.h"
#include "loci/server/server_parts.h"
#include "loci/server/unanswered_moves.h"

namespace loci {
namespace {

// Fronts read the list of members every second.
constexpr std::chrono::milliseconds kFrontsHear{1'500};
// A conversation store of which nothing ends for so long stands still.
constexpr Nanos kStoreStands = 5 * kNanosPerSecond;

// Refuses options that only a cluster's member has: without `join` they would have no effect.
Status check_alone(const ServerConfig& config) {
  const char* option = config.role != "both"                              ? "role"
                       : !config.advertise.empty()                        ? "advertise"
                       : config.peer_port && config.peer_port.value() > 0 ? "peer_port"
                                                                          : nullptr;
  if (option == nullptr) return {};
  return invalid_argument("only a member of a cluster has one: name the cluster's database (option join)",
                          option);
}

// Before the model is loaded, so that a mistake shows at once.
Status open_cluster(ServerParts& parts) {
  const ServerConfig& config = parts.config;
  if (config.join.empty()) return check_alone(config);
  LOCI_RETURN_IF_ERROR(check_advertised(config, *parts.log));
  if (config.role == "prefill" && !config.peer_port)
    return invalid_argument(
        "a prefill member computes state that others read: give it a port for that (option peer_port)",
        "role");
  LOCI_ASSIGN_OR_RETURN(parts.members, open_members(config.join, config.cluster_secret));
  return {};
}

PageGuard page_guard(const ServerConfig& config) {
  PageGuard::Rules rules{.origins = config.cors_origins, .host_names = config.allowed_hosts};
  // Fronts ask a member under the name that it advertises.
  const auto advertised = parse_member_address(config.advertise);
  for (const std::string& name :
       {config.http.host, machine_name(), advertised.ok() ? advertised->first : std::string()}) {
    if (!name.empty()) rules.host_names.push_back(name);
  }
  return PageGuard(std::move(rules));
}

void make_services(ServerParts& parts) {
  const ServerConfig& config = parts.config;
  parts.workers = std::make_unique<WorkerPool>(config.workers);
  parts.http = std::make_unique<HttpServer>(config.http, parts.clock, parts.metrics, parts.log);
  const WorkerWaits waits{
      .refused = {StatusCode::kUnavailable, "the conversation store does not answer; try again later"}};
  parts.store_thread = std::make_unique<WorkerPool>(kStoreThreads, waits);
  const auto reads_max =
      static_cast<std::uint32_t>(std::max<std::size_t>(config.http.limits.connections_max / 2, 1));
  const ApiOptions options{.pages = page_guard(config),
                           .access_log = config.access_log,
                           .page = config.page,
                           .metrics_access = config.metrics_access,
                           .body_bytes_max = config.http.limits.body_bytes_max,
                           .reads_max = reads_max};
  parts.services.reset(new ApiServices{{.workers = *parts.workers,
                                        .store_thread = *parts.store_thread,
                                        .limiter = parts.limiter,
                                        .history = parts.history,
                                        .metrics = parts.metrics,
                                        .clock = parts.clock,
                                        .log = parts.log,
                                        .time_limit = config.request_timeout},
                                       options,
                                       parts.store.get(),
                                       parts.tenants,
                                       parts.public_prefixes});
  parts.services->tracer = parts.traces.tracer.get();
}

// Who listens to others without asking who they are should know it.
void warn_of_open_doors(const ServerParts& parts) {
  const std::string& host = parts.config.http.host;
  const bool local = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (local || parts.tenants.has_keys()) return;
  parts.log->warn(
      "anybody who reaches {} may use this server: it has no keys (option `api_keys`, LOCI_API_KEY)", host);
}

// An error is of a field of the keys' file, or of the whole of it.
Status open_tenants(ServerParts& parts) {
  const Status status = parts.tenants.open(parts.config.keys, parts.log);
  return status.ok() || !status.field().empty() ? status
                                                : Status(status.code(), status.message(), "api_keys");
}

// The prefix that is public from the start. Another member may have its state already.
Status warm_public(ServerParts& parts) {
  const std::string& file = parts.config.public_prefix;
  if (file.empty()) return {};
  if (parts.members) {
    const Result<MemberList> members = parts.members->list();
    if (members.ok()) know_peers(parts.peers, member_serving(parts.served), *members);
  }
  if (!parts.config.policies.reuse)
    return invalid_argument(
        "expected no public prefix while the option reuse is off: no request would use its state", "public");
  const Result<std::string> text = read_text_file(file);
  if (!text.ok()) return Status(text.status().code(), text.status().message(), "public");
  const std::string name = std::filesystem::path(file).stem().string();
  LOCI_RETURN_IF_ERROR(check_name(name, "public"));
  const Status status = warm_and_wait(parts.served, parts.public_prefixes, name, warm_body(name, *text));
  return status.ok() ? status : Status(status.code(), file + ": " + status.message(), "public");
}

Status join_opened(ServerParts& parts) {
  if (!parts.members) return {};
  LOCI_ASSIGN_OR_RETURN(
      parts.membership,
      join_cluster(std::move(parts.members), parts.config, parts.http->port(), parts.served,
                   parts.store ? parts.store->server() : std::string(), parts.peers, parts.log));
  if (parts.config.keys.file.empty()) return {};  // nobody has limits
  LOCI_ASSIGN_OR_RETURN(parts.cluster_limits,
                        open_cluster_limits(parts.config, parts.membership->id(), parts.log));
  parts.limiter.count_with(*parts.cluster_limits);
  return {};
}

bool has_requests(const Engine& engine) {
  const CoreStats stats = engine.stats();
  return stats.running + stats.queued + stats.before_queue > 0;
}

}  // namespace

Server::Server(std::unique_ptr<ServerParts> parts) : parts_(std::move(parts)) {}
Server::~Server() = default;

std::uint16_t Server::port() const { return parts_->http->port(); }

Result<std::unique_ptr<Server>> Server::open(ServerConfig config, std::shared_ptr<spdlog::logger> log) {
  auto made = std::make_unique<ServerParts>();
  ServerParts& parts = *made;
  parts.config = std::move(config);
  parts.log = std::move(log);
  LOCI_RETURN_IF_ERROR(open_cluster(parts));
  TracesOptions traces = parts.config.traces;
  traces.scheme = parts.config.http.tls.given() ? "https" : "http";
  LOCI_ASSIGN_OR_RETURN(parts.traces, open_traces(traces, parts.clock, parts.log));
  LOCI_RETURN_IF_ERROR(open_conversations(parts));
  make_services(parts);
  LOCI_RETURN_IF_ERROR(open_tenants(parts));
  // By name only where not everybody reads it.
  if (parts.config.metrics_access == Access::kOperator || !parts.tenants.has_keys())
    parts.metrics.tell_tenants_apart();
  keep_conversations(parts);
  parts.api = std::make_unique<Api>(*parts.services);
  LOCI_RETURN_IF_ERROR(
      parts.http->listen([&api = *parts.api](Exchange& exchange) { return api.handle(exchange); }));
  warn_of_open_doors(parts);
  return std::unique_ptr<Server>(new Server(std::move(made)));
}

Status Server::load(const FindModel& find_model) {
  ServerParts& parts = *parts_;
  const Nanos begin = parts.clock.now();
  LOCI_ASSIGN_OR_RETURN(const LoadedEngine loaded, load_engine(parts, find_model));
  LOCI_RETURN_IF_ERROR(warm_public(parts));
  parts.services->name_prompt = parts.peers.name_prompt;
  parts.services->feed_stats = parts.peers.feed_stats;
  parts.services->ask_for_prefill = parts.peers.ask_for_prefill;
  if (!parts.config.join.empty()) {
    LOCI_ASSIGN_OR_RETURN(parts.services->take_resumed, resumed_reader(parts.config.cluster_secret));
    LOCI_ASSIGN_OR_RETURN(parts.services->was_lost, lost_reader(parts.config.cluster_secret));
    LOCI_ASSIGN_OR_RETURN(parts.services->read_prefill, prefill_reader(parts.config.cluster_secret));
  }
  parts.services->served.store(&parts.served);
  LOCI_RETURN_IF_ERROR(join_opened(parts));
  watch_other_servers(*parts.store_thread, parts.store.get(), parts.membership, parts.log);
  report_ = server_report(parts.config, loaded, parts.served, port(), parts.clock.now() - begin);
  return {};
}

ServerEnd Server::drain(const StopWithin& stop_within) {
  ServerParts& parts = *parts_;
  if (parts.membership) {
    // Fronts hear of it while new requests are still answered, so that none of theirs fails.
    parts.membership->drain();
    stop_within(kFrontsHear);
  }
  const Nanos patience = parts.config.drain_timeout;
  parts.log->info("stopping: running replies may go on for {} (a second signal stops at once)",
                  format_duration(patience));
  parts.services->draining.store(true);
  const auto stop_at_once = [&parts] {
    parts.log->warn("stopping at once: replies are cut off");
    parts.services->stops_at_once.store(true);
    parts.http->stop(0);
    return ServerEnd::kCutOff;
  };
  // Once the engine drains it takes nothing. Who waits for another member to compute a prompt sees within
  // seconds that this server stops, and comes back or gives up.
  while (parts.services->handed.load() > 0) {
    if (stop_within(std::chrono::milliseconds(20))) return stop_at_once();
  }
  parts.engine->drain(patience);
  UnansweredMoves unanswered;
  bool has_said = false;
  while (!parts.engine->wait_drained(0)) {
    if (!stop_within(std::chrono::milliseconds(20))) {
      const std::uint64_t moves =
          unanswered.look(has_requests(*parts.engine), parts.engine->mover_stats(), parts.clock.now());
      if (has_said || moves == 0) continue;
      has_said = true;
      parts.log->warn(
          "stopping waits for {} loads and saves of state, of which none has ended for {}: a disk or store "
          "does not answer, and is given up in time",
          moves, format_duration(UnansweredMoves::kSaysAfter));
      continue;
    }
    return stop_at_once();
  }
  // What the engine has said is on its way to the clients and to the store.
  auto open = parts.services->open_work.load();
  for (Nanos until = parts.clock.now() + kStoreStands; open > 0 && parts.clock.now() < until;) {
    if (stop_within(std::chrono::milliseconds(5))) break;
    const auto left = parts.services->open_work.load();
    if (left < open) until = parts.clock.now() + kStoreStands;  // it is slow, but goes on
    open = left;
  }
  // Who still waits for a database is told that it does not answer.
  if (parts.services->open_work.load() > 0 && parts.store) parts.store->abandon();
  parts.http->stop(5 * kNanosPerSecond);
  if (parts.traces.exporter) parts.traces.exporter->stop(kTracesPatience);
  parts.log->info("stopped");
  return ServerEnd::kDrained;
}

}  // namespace loci
