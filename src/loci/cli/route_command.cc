// SPDX-License-Identifier: Apache-2.0
// `loci route`: a front of a cluster, without a model (docs/cluster.md). A first SIGINT or SIGTERM drains, a
// second one stops at once.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/units.h"
#include "loci/base/version.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/options/otel_environment.h"
#include "loci/cli/options_command.h"
#include "loci/cli/serve_report.h"
#include "loci/cli/status_text.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/cluster/front.h"
#include "loci/cluster/member_watch.h"
#include "loci/cluster/peers/peer_tls.h"
#include "loci/serve/http/server.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/server/open_members.h"
#include "loci/server/open_traces.h"
#include "loci/server/process.h"

namespace loci {
namespace {

struct RouteFlags {
  std::string join, secret, policy = "first-token", handover = "predicted", tls_ca, log_level = "info",
                            log_format = "text", access_log = "on", page = "on";
  std::string max_body = "8MiB", max_bodies = "256MiB", request_timeout = "1h", drain_timeout = "30s";
  TracesOptions traces{.service = "loci-front"};
  OtelTold told;  // of them
  std::vector<std::string> allowed_hosts;
  HttpServer::Options http;
};

LogFormat log_format_of(const RouteFlags& flags) {
  return flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
}

// Everything that routes, in the order in which it must be taken down.
struct Routing {
  SystemClock clock;
  std::shared_ptr<spdlog::logger> log;
  ServeMetrics metrics{kVersion};
  Traces traces;
  std::unique_ptr<WorkerPool> workers;
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<Front> front;
  std::unique_ptr<MemberWatch> watch;

  ~Routing() {
    watch.reset();
    if (server) server->stop(0);
    workers.reset();
    if (front) front->close();
    server.reset();  // with the coroutines that use the front
  }
};

template <class Value, class Parsed>
Status take(Result<Parsed> parsed, const char* flag, Value& out) {
  if (!parsed.ok()) return invalid_argument(parsed.status().message(), flag);
  out = static_cast<Value>(*parsed);
  return {};
}

// What the flags and the environment say.
struct RouteSetup {
  FrontOptions front;
  Nanos drain_timeout = 0;
  OtelNews news;
};

Result<FrontOptions> front_options(RouteFlags& flags, Nanos& drain_timeout) {
  FrontOptions out;
  if (const Status url = check_join_url(flags.join); !url.ok())
    return invalid_argument(url.message(), "--join");
  if (flags.http.host.empty()) return invalid_argument(kNoHost, "--host");
  const std::optional<RoutingPolicy> policy = parse_routing_policy(flags.policy);
  if (!policy) {
    return invalid_argument(
        fmt::format("expected first-token, prompt-tree, session or least-load, found \"{}\"", flags.policy),
        "--policy");
  }
  out.instances.policy = *policy;
  const std::optional<Handover> handover = parse_handover(flags.handover);
  if (!handover)
    return invalid_argument(fmt::format("expected predicted or always, found \"{}\"", flags.handover),
                            "--handover");
  out.instances.handover = *handover;
  HttpLimits& limits = flags.http.limits;
  LOCI_RETURN_IF_ERROR(take(parse_bytes(flags.max_body, ""), "--max-body", limits.body_bytes_max));
  LOCI_RETURN_IF_ERROR(take(parse_bytes(flags.max_bodies, ""), "--max-bodies", limits.bodies_bytes_max));
  if (limits.body_bytes_max == 0) return invalid_argument("expected more than 0", "--max-body");
  if (limits.bodies_bytes_max == 0) return invalid_argument("expected more than 0", "--max-bodies");
  out.kept_bytes_max = limits.bodies_bytes_max;
  LOCI_RETURN_IF_ERROR(
      take(parse_duration(flags.request_timeout, ""), "--request-timeout", out.request_timeout));
  if (out.request_timeout <= 0) return invalid_argument("expected more than 0", "--request-timeout");
  LOCI_RETURN_IF_ERROR(take(parse_duration(flags.drain_timeout, ""), "--drain-timeout", drain_timeout));
  std::vector<std::string> names;
  LOCI_RETURN_IF_ERROR(take(parse_host_names(flags.allowed_hosts), "--allowed-host", names));
  for (const std::string& name : {flags.http.host, machine_name()}) {
    if (!name.empty()) names.push_back(name);
  }
  out.pages = PageGuard({.origins = {}, .host_names = std::move(names)});
  out.access_log = flags.access_log == "on";
  out.page = flags.page == "on";
  return out;
}

Result<RouteSetup> set_up(RouteFlags& flags) {
  RouteSetup out;
  LOCI_ASSIGN_OR_RETURN(out.front, front_options(flags, out.drain_timeout));
  flags.traces.scheme = flags.http.tls.given() ? "https" : "http";
  LOCI_ASSIGN_OR_RETURN(out.news, apply_otel_environment(whole_environment(), flags.told, flags.traces));
  return out;
}

// The list that it begins with is there before the first request.
void watch_members(Routing& routing, std::unique_ptr<MemberTable> table) {
  const auto first = std::make_shared<std::promise<void>>();
  std::future<void> told = first->get_future();
  Front& front = *routing.front;
  boost::asio::io_context& io = routing.server->io();
  const auto tell = [&front, &io, first, is_first = std::make_shared<bool>(true)](MemberList list) {
    boost::asio::post(io, [&front, first, is_first, list = std::move(list)] {
      front.update(list);
      if (std::exchange(*is_first, false)) first->set_value();
    });
  };
  routing.watch = std::make_unique<MemberWatch>(std::move(table), tell, routing.log);
  told.wait_for(std::chrono::seconds(5));
}

Status start(const RouteFlags& flags, FrontOptions options, Routing& routing) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<MemberTable> table, open_members(flags.join, flags.secret));
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(flags.secret));
  options.prompt_key = cluster_prompt_key(secret);
  options.reply_key = cluster_reply_key(secret);
  options.prefill_key = cluster_prefill_key(secret);
  LOCI_ASSIGN_OR_RETURN(TlsContext trusted, make_client_tls(flags.tls_ca));
  LOCI_ASSIGN_OR_RETURN(TlsContext peers, make_peer_client_tls(cluster_peer_key(secret)));
  LOCI_ASSIGN_OR_RETURN(routing.traces, open_traces(flags.traces, routing.clock, routing.log));
  routing.workers = std::make_unique<WorkerPool>(2);
  routing.server = std::make_unique<HttpServer>(flags.http, routing.clock, routing.metrics, routing.log);
  routing.front =
      std::make_unique<Front>(options, routing.server->io(), *routing.workers, routing.clock, routing.log);
  routing.front->trust(std::move(trusted));
  routing.front->follow(std::move(peers));
  if (routing.traces.tracer) routing.front->trace_with(*routing.traces.tracer);
  Front& front = *routing.front;
  LOCI_RETURN_IF_ERROR(
      routing.server->listen([&front](Exchange& exchange) { return front.handle(exchange); }));
  watch_members(routing, std::move(table));
  const std::string url = fmt::format("{}://{}", flags.http.tls.given() ? "https" : "http",
                                      authority_of(flags.http.host, routing.server->port()));
  print_front_ready(url, log_format_of(flags));
  return {};
}

int run_route(const RouteFlags& flags, const RouteSetup& setup) {
  const Nanos drain_timeout = setup.drain_timeout;
  raise_descriptor_limit();
  block_operator_signals();
  Routing routing;
  routing.log = make_logger(log_format_of(flags), flags.log_level);
  const OperatorSignals signals(*routing.log);
  for (const std::string& warning : setup.news.warnings) routing.log->warn(warning);
  for (const std::string& note : setup.news.notes) routing.log->info(note);
  if (const Status status = start(flags, setup.front, routing); !status.ok()) {
    fmt::print(stderr, "loci route: {}\n", for_people(status));
    return 1;
  }
  while (!signals.stop_within(std::chrono::minutes(1))) {
  }
  routing.log->info("stopping: running replies may go on for {} (a second signal stops at once)",
                    format_duration(drain_timeout));
  // Whoever still reads a reply then is told that it is cut off, and takes that.
  constexpr Nanos kLastWords = 2 * kNanosPerSecond;
  const auto cut = std::make_shared<boost::asio::steady_timer>(routing.server->io());
  boost::asio::post(routing.server->io(), [&front = *routing.front, cut, drain_timeout] {
    front.drain();
    cut->expires_after(std::chrono::nanoseconds(drain_timeout));
    cut->async_wait([&front](const boost::system::error_code& error) {
      if (!error) front.cut_off();
    });
  });
  auto stopping = std::async(std::launch::async, [&] { routing.server->stop(drain_timeout + kLastWords); });
  while (stopping.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    if (!signals.stop_within(std::chrono::milliseconds(20))) continue;
    routing.log->warn("stopping at once: replies are cut off");
    end_log(1);
    std::_Exit(1);
  }
  if (routing.traces.exporter) routing.traces.exporter->stop(kTracesPatience);
  routing.log->info("stopped");
  return 0;
}

// Adds options. Their variables are this command's only while it is the one that was asked for: CLI11 reads
// those of all commands, and `serve` has its own meanings and errors for them.
class RouteOptions {
 public:
  explicit RouteOptions(CLI::App& command) : command_(command) {
    command.preparse_callback([variables = variables_](std::size_t) {
      for (const auto& [option, variable] : *variables) option->envname(variable);
    });
  }

  template <class Value>
  CLI::Option* operator()(const char* name, Value& value, const char* variable, const char* help) const {
    CLI::Option* option = command_.add_option(name, value, help)->capture_default_str();
    variables_->emplace_back(option, variable);
    return option;
  }

 private:
  CLI::App& command_;
  std::shared_ptr<std::vector<std::pair<CLI::Option*, const char*>>> variables_ =
      std::make_shared<std::vector<std::pair<CLI::Option*, const char*>>>();
};

// `flags` lives as long as the command.
void add_trace_options(const RouteOptions& add, RouteFlags& flags) {
  const auto tells = [](bool& told) { return [&told](const std::string&) { told = true; }; };
  add("--traces", flags.traces.url, "LOCI_TRACES",
      "the URL of a collector to which spans of requests are sent, as OTLP by HTTP, such as "
      "http://127.0.0.1:4318")
      ->each(tells(flags.told.url));
  add("--trace-share", flags.traces.share, "LOCI_TRACE_SHARE",
      "of the requests that bring no trace of their own (header traceparent), the share that is traced")
      ->check(CLI::Range(0.0, 1.0))
      ->each(tells(flags.told.share));
  add("--trace-headers", flags.traces.headers_file, "LOCI_TRACE_HEADERS",
      "a file with headers for the collector of traces, such as a key, one NAME: VALUE on each line, which "
      "its owner alone may read");
}

}  // namespace

void add_route_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("route", "pass requests on to the members of a cluster");
  command->group(kManyGroup);
  auto flags = std::make_shared<RouteFlags>();
  const RouteOptions add(*command);
  add("--join", flags->join, "LOCI_JOIN", "the database of the cluster's members, postgresql://...")
      ->required();
  add("--cluster-secret", flags->secret, "LOCI_CLUSTER_SECRET", "the cluster's secret (`loci keys cluster`)")
      ->required();
  add("--policy", flags->policy, "LOCI_POLICY",
      "which instance gets a request: first-token (the one that is predicted to answer first, by the state "
      "that it has and its queue), prompt-tree (the same, but its state is guessed from what it was sent), "
      "session (the one that had the conversation before) or least-load (the one with the least to do)");
  add("--handover", flags->handover, "LOCI_HANDOVER",
      "which prompts members of role prefill compute: predicted (those for which that is predicted to take "
      "less of everybody's time, with --policy first-token) or always (all)");
  add("--host", flags->http.host, "LOCI_HOST",
      "the address to listen on; 0.0.0.0 listens on every interface");
  add("--port", flags->http.port, "LOCI_PORT",
      "the port to listen on; 0 takes a free one, which is printed at start")
      ->check(integer_from(0, 65535));
  add("--tls-cert", flags->http.tls.certificate, "LOCI_TLS_CERT",
      "a PEM file with the certificate; with it and --tls-key the front speaks HTTPS");
  add("--tls-key", flags->http.tls.key, "LOCI_TLS_KEY", "a PEM file with the certificate's private key");
  add("--tls-ca", flags->tls_ca, "LOCI_TLS_CA", kTlsCaHelp);
  add("--max-connections", flags->http.limits.connections_max, "LOCI_MAX_CONNECTIONS",
      "the most connections of clients at once")
      ->check(CLI::Range(1, 1'000'000));
  add("--max-body", flags->max_body, "LOCI_MAX_BODY", "the largest body of a request");
  add("--max-bodies", flags->max_bodies, "LOCI_MAX_BODIES",
      "the memory for the bodies of all requests together, and as much again for those of streams that have "
      "begun");
  add("--request-timeout", flags->request_timeout, "LOCI_REQUEST_TIMEOUT", "how long a whole reply may take");
  add("--drain-timeout", flags->drain_timeout, "LOCI_DRAIN_TIMEOUT",
      "how long running replies may go on after the front is told to stop");
  add("--allowed-host", flags->allowed_hosts, "LOCI_ALLOWED_HOST",
      "further host names by which clients may call this front, with commas between them")
      ->delimiter(',');
  add("--page", flags->page, "LOCI_PAGE", "show web browsers a chat at /")
      ->check(CLI::IsMember({"on", "off"}));
  add("--log-level", flags->log_level, "LOCI_LOG_LEVEL", "how much is logged")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  add("--log-format", flags->log_format, "LOCI_LOG_FORMAT",
      "the form of the log: lines for people, or one JSON object a line")
      ->check(CLI::IsMember({"text", "json"}));
  add("--access-log", flags->access_log, "LOCI_ACCESS_LOG", "log one line for each request")
      ->check(CLI::IsMember({"on", "off"}));
  add_trace_options(add, *flags);
  command->footer(
      "Example:\n  loci route --join postgresql://db/loci --cluster-secret cluster.secret --host 0.0.0.0");
  command->callback([flags, &exit_code] {
    const Result<RouteSetup> setup = set_up(*flags);
    refuse_unless_ok(setup.status());
    exit_code = run_route(*flags, *setup);
    end_log(exit_code);
  });
}

}  // namespace loci
