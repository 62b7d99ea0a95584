// SPDX-License-Identifier: Apache-2.0
// `loci serve MODEL`. The network answers (503) before the model is loaded; a first SIGINT or SIGTERM
// drains, a second one stops at once.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/hidden_choice.h"
#include "loci/cli/host_memory.h"
#include "loci/cli/join_cluster.h"
#include "loci/cli/options_command.h"
#include "loci/cli/paths.h"
#include "loci/cli/profile_file.h"
#include "loci/cli/pull/resolve_model.h"
#include "loci/cli/sampling_choice.h"
#include "loci/cli/serve_flags.h"
#include "loci/cli/serve_overflow.h"
#include "loci/cli/serve_process.h"
#include "loci/cli/serve_profile.h"
#include "loci/cli/serve_report.h"
#include "loci/cli/shared_tier.h"
#include "loci/cli/state_tiers.h"
#include "loci/compute/make_backend.h"
#include "loci/engine/run/engine.h"
#include "loci/model/model.h"
#include "loci/serve/api.h"
#include "loci/serve/files/text_file.h"
#include "loci/serve/http/server.h"
#include "loci/serve/store/open_store.h"
#include "loci/serve/store/store_claim.h"
#include "loci/serve/store/store_keeper.h"

namespace loci {
namespace {

// Everything that serves, in the order in which it must be taken down.
struct Serving {
  SystemClock clock;
  std::shared_ptr<spdlog::logger> log;
  ServeMetrics metrics{kVersion};
  std::unique_ptr<Model> model;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DiskKeeper> disk_keeper;  // asks the engine's store
  ServedModel served;
  Tenants tenants;
  TenantLimiter limiter{clock};
  PublicPrefixes public_prefixes;
  TokenHistory history;
  StoreClaim store_claim;  // goes after the store
  std::unique_ptr<QuotaLog> quota_log;
  std::unique_ptr<ConversationStore> store;
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<WorkerPool> workers;
  std::unique_ptr<WorkerPool> store_thread;
  std::unique_ptr<ApiServices> services;
  std::unique_ptr<Api> api;
  std::unique_ptr<MemberTable> members;    // until it has joined
  std::unique_ptr<Membership> membership;  // null: of no cluster

  ~Serving() {
    membership.reset();
    if (server) server->stop(0);
    workers.reset();
    if (services && services->turn_claims) services->turn_claims->stop();
    store_thread.reset();
    server.reset();
    disk_keeper.reset();
    engine.reset();
  }
};

// Of a pass, where --max-batch-tokens does not say: as many rows as let products come near the device's rate.
constexpr std::uint32_t kPassTokensCpu = 512, kPassTokensGpu = 2048;
std::uint32_t pass_tokens(const ServeFlags& flags, std::uint32_t of_device) {
  return flags.max_batch_tokens != 0 ? flags.max_batch_tokens : of_device;
}

Result<MadeBackend> make_backend(const ServeFlags& flags, const ModelSpec& spec, std::uint32_t context,
                                 const std::shared_ptr<spdlog::logger>& log) {
  return make_backend(spec, {.device = flags.device,
                             .state_type = flags.state_type,
                             .cpu = {.threads = flags.threads, .instruction_set = flags.instruction_set},
                             .cuda = {.deterministic = flags.deterministic,
                                      .max_batch_tokens = pass_tokens(flags, kPassTokensGpu),
                                      .context_tokens = context,
                                      .max_spans = flags.max_running,
                                      .warn = [log](const std::string& what) { log->warn(what); }}});
}

// The host tier: its size, and where that comes from (empty: the flag).
struct HostTier {
  std::uint64_t bytes = 0;
  std::string reason;
};

Result<HostTier> size_host_tier(const ServeFlags& flags, const MadeBackend& made) {
  if (flags.host_memory) return HostTier{.bytes = *flags.host_memory};
  if (!made.gpu) return HostTier{};
  Result<HostMemoryReading> memory = read_host_memory("");
  if (!memory.ok()) {
    return Status(memory.status().code(),
                  "this machine does not tell its available memory; give --host-memory", "--host-memory");
  }
  return HostTier{.bytes = default_host_tier(PoolMemory::kDevice, memory->available_bytes),
                  .reason = fmt::format("half of the {} available", format_bytes(memory->available_bytes))};
}

Result<PoolSize> size_device(const ServeFlags& flags, const MadeBackend& made, const HostTier& host,
                             std::uint32_t context) {
  PoolRequest pool{.wanted_bytes = flags.device_memory,
                   .available_bytes = made.gpu ? made.gpu->free_bytes : 0,
                   .groups = {},
                   .context_tokens = context,
                   .max_running = flags.max_running,
                   .memory = made.gpu ? PoolMemory::kDevice : PoolMemory::kHost};
  for (const LayerGroup& group : made.backend->info().groups) {
    pool.groups.push_back({group.window, group.block_bytes});
  }
  if (!pool.wanted_bytes && !made.gpu) {
    LOCI_ASSIGN_OR_RETURN(const HostMemoryReading memory, read_host_memory(""));
    // The host tier is of the same memory.
    pool.available_bytes = memory.available_bytes - std::min(memory.available_bytes, host.bytes);
  }
  return size_pool(pool);
}

// Takes the disk out of `tiers`.
Result<EngineOptions> engine_options(const ServeFlags& flags, const ModelSpec& spec, const BackendInfo& info,
                                     const PoolSize& size, StateTiers& tiers) {
  EngineOptions options;
  options.core = {.layers = spec.layer_count(),
                  .max_running = flags.max_running,
                  .max_queued = flags.max_queued,
                  .passes_ahead = info.passes_ahead,
                  .model_fingerprint = spec.fingerprint,
                  .eviction = flags.eviction,
                  .admission = flags.admission,
                  .restore = flags.restore,
                  .save = flags.save,
                  .state_ttl = flags.state_ttl.value_or(kNever),
                  .seed = flags.seed};
  for (std::size_t i = 0; i < info.groups.size(); ++i) {
    CoreGroup group{.window = info.groups[i].window, .block_count = size.blocks[i]};
    if (!tiers.host_blocks.empty()) group.host_blocks = tiers.host_blocks[i];
    if (tiers.disk != nullptr) group.disk_blocks = tiers.disk->groups()[i].slots;
    if (!flags.shared.empty()) group.shared_blocks = shared_blocks_remembered(group.block_count);
    group.block_bytes = info.groups[i].block_bytes;
    options.core.groups.push_back(group);
  }
  if (tiers.disk != nullptr && tiers.disk->groups().size() > info.groups.size()) {
    const DiskGroup& hidden = tiers.disk->groups().back();
    options.core.hidden = {.disk_blocks = hidden.slots,
                           .block_bytes = hidden.layers * hidden.layer_slice_bytes};
  }
  options.core.chain_secret = tiers.chain_secret;
  if (tiers.disk != nullptr) options.core.hole_records = tiers.disk->hole_records();
  options.mover.host_blocks = tiers.host_blocks;
  if (tiers.disk != nullptr) options.disk_room.slots = tiers.disk->room(tiers.room);
  options.mover.disk = std::move(tiers.disk);
  options.event_log_path = flags.event_log;
  options.event_log_secret = flags.event_log_secret ? LoggedSecret::kKept : LoggedSecret::kLeftOut;
  return options;
}

// The store, which the engine owns, must outlive the keeper's thread.
void keep_within_budget(Serving& serving, std::unique_ptr<DiskKeeper> keeper, const DiskStore& disk) {
  serving.disk_keeper = std::move(keeper);
  serving.disk_keeper->start([&disk] { return disk.stats().oldest_used_at; },
                             [&disk, &engine = *serving.engine](std::uint64_t room) {
                               engine.set_disk_room({.slots = disk.room(room)});
                             });
}

// The pools of the device, with room to measure in; and what the first pass would pay is paid.
Status allocate_pools(const ServeFlags& flags, Backend& backend, const PoolSize& size,
                      std::uint32_t context) {
  for (std::uint32_t group = 0; group < backend.info().groups.size(); ++group) {
    Status status = backend.allocate_blocks(group, size.blocks[group] + spare_slots(size.blocks));
    if (!status.ok() && status.field().empty() && flags.device_memory)
      status = Status(status.code(), status.message(), "--device-memory");
    LOCI_RETURN_IF_ERROR(status);
  }
  const std::uint32_t batch =
      pass_tokens(flags, backend.info().name == "cpu" ? kPassTokensCpu : kPassTokensGpu);
  warm_up(backend, size.blocks, batch, context);
  return {};
}

// What the server measures by itself where nothing was measured.
SelfProfile self_profile(const Model& model, const std::string& path, const ChosenCosts& costs,
                         const BackendInfo& info, const CoreConfig& core) {
  SelfProfile self{.path = costs.measure_into.value_or(""),
                   .batch_tokens = core.max_batch_tokens,
                   .context_tokens = core.context_tokens};
  std::vector<std::uint32_t> blocks;
  for (const CoreGroup& group : core.groups) blocks.push_back(group.block_count);
  self.slots = spare_slots_behind(blocks);
  self.profile.machine = this_machine(info);
  self.profile.model = path;
  self.profile.model_fingerprint = fingerprint_text(model.spec.fingerprint);
  self.profile.rough = true;
  self.profile.curves = costs.curves;
  return self;
}

Result<std::uint32_t> context_of(const ServeFlags& flags, const ModelSpec& spec) {
  const std::uint32_t context = flags.context_tokens == 0 ? spec.context_length : flags.context_tokens;
  if (context < 2 || context > spec.context_length) {
    return invalid_argument(
        fmt::format("expected from 2 to {}, the tokens that the model was trained for; got {}",
                    spec.context_length, context),
        "--context");
  }
  return context;
}

Result<std::optional<ClusterSecret>> cluster_secret_of(const ServeFlags& flags) {
  if (flags.cluster_secret.empty()) return std::optional<ClusterSecret>();
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(flags.cluster_secret));
  return std::optional<ClusterSecret>(secret);
}

// Gives the engine the store that servers share, if there is one; returns what it is, for people.
Result<std::string> open_shared_store(const ServeFlags& flags, const StateTiers& tiers, Serving& serving,
                                      EngineOptions& options) {
  LOCI_ASSIGN_OR_RETURN(
      SharedTier shared,
      open_shared_tier({.url = flags.shared,
                        .time_to_live = flags.shared_ttl,
                        .keys = tiers.shared_keys,
                        .backend = &serving.backend->info(),
                        .warn = [log = serving.log](const std::string& line) { log->warn(line); }},
                       serving.clock));
  options.mover.shared = std::move(shared.store);
  return std::move(shared.summary);
}

ServedModel served_model(const ServeFlags& flags, const Serving& serving, std::uint32_t context,
                         SamplingParams defaults) {
  const auto& model = serving.model->spec.fingerprint;
  return {.model = serving.model.get(),
          .engine = serving.engine.get(),
          .backend = serving.backend->info(),
          .context_tokens = context,
          .loaded_at = seconds_since_1970(),
          .fingerprint = fmt::format("loci-{}-{:02x}{:02x}{:02x}{:02x}", kVersion, model[0], model[1],
                                     model[2], model[3]),
          .overflow = overflow_rule(flags, serving.engine->config()),
          .chat = find_chat_syntax(*serving.model),
          .defaults = {.sampling = std::move(defaults),
                       .unserved = flags.lenient ? UnservedRule::kIgnore : UnservedRule::kRefuse},
          .aliases = flags.aliases,
          .any_name = flags.any_model};
}

Result<LoadedConfiguration> load(const ServeFlags& flags, Serving& serving) {
  const auto say = [&serving](const std::string& line) { serving.log->info(line); };
  LOCI_ASSIGN_OR_RETURN(
      const std::string path,
      resolve_model(flags.model, flags.pull ? WhenMissing::kPull : WhenMissing::kFail, say));
  LOCI_ASSIGN_OR_RETURN(const std::optional<ClusterSecret> cluster_secret, cluster_secret_of(flags));
  LOCI_RETURN_IF_ERROR(check_shared_flags(flags.shared, cluster_secret.has_value()));
  LOCI_ASSIGN_OR_RETURN(Model model, load_model(path, flags.load));
  serving.model = std::make_unique<Model>(std::move(model));
  const ModelSpec& spec = serving.model->spec;
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t context, context_of(flags, spec));
  LOCI_ASSIGN_OR_RETURN(MadeBackend made, make_backend(flags, spec, context, serving.log));
  serving.log->info("device: {}{}", made.chosen, made.why.empty() ? "" : " (" + made.why + ")");
  LOCI_ASSIGN_OR_RETURN(const HostTier host, size_host_tier(flags, made));
  LOCI_ASSIGN_OR_RETURN(const PoolSize size, size_device(flags, made, host, context));
  serving.backend = std::move(made.backend);
  const BackendInfo& info = serving.backend->info();
  LOCI_RETURN_IF_ERROR(allocate_pools(flags, *serving.backend, size, context));
  LOCI_ASSIGN_OR_RETURN(ChosenCosts costs, choose_costs(flags.profile, this_machine(info), spec.fingerprint,
                                                        assumed_costs(info)));
  LOCI_ASSIGN_OR_RETURN(const HiddenChoice hidden,
                        choose_hidden({.wanted = flags.hidden, .save = flags.save, .host_bytes = host.bytes},
                                      info, limited_costs(costs.curves, flags.io_limit.value_or(0))));
  LOCI_ASSIGN_OR_RETURN(StateTiers tiers, open_state_tiers({.host_bytes = host.bytes,
                                                            .disk = flags.disk,
                                                            .disk_io = flags.disk_io,
                                                            .io_limit = flags.io_limit.value_or(0),
                                                            .default_folder = default_state_path(),
                                                            .backend = &info,
                                                            .hidden_percent = hidden.percent,
                                                            .hidden_slice_bytes = hidden.slice_bytes,
                                                            .context_tokens = context,
                                                            .model_fingerprint = spec.fingerprint,
                                                            .cluster_secret = cluster_secret,
                                                            .model_name = {serving.model->id, path},
                                                            .say = say}));
  for (const std::string& note : tiers.notes) serving.log->info(note);
  for (const std::string& warning : tiers.warnings) serving.log->warn(warning);
  LOCI_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags, spec, info, size, tiers));
  LOCI_ASSIGN_OR_RETURN(const std::string shared_tier, open_shared_store(flags, tiers, serving, options));
  options.core.context_tokens = context;
  options.core.max_batch_tokens = pass_tokens(flags, made.gpu ? kPassTokensGpu : kPassTokensCpu);
  options.core.pass_time = flags.pass_time.value_or(kNever);
  options.core.costs = limited_costs(costs.curves, flags.io_limit.value_or(0));
  options.core.hidden.share_percent = hidden.percent;
  options.capture_places = capture_places(options.core);
  SelfProfile self = self_profile(*serving.model, path, costs, info, options.core);
  self.profile.disk_directory = tiers.disk_folder;
  self.io_limit = flags.io_limit.value_or(0);
  const DiskStore* disk = options.mover.disk.get();
  LOCI_ASSIGN_OR_RETURN(serving.engine, Engine::start(std::move(options), *serving.backend, serving.clock));
  if (disk != nullptr) keep_within_budget(serving, std::move(tiers.keeper), *disk);
  if (costs.measure_into) profile_when_idle(std::move(self), *serving.backend, *serving.engine, serving.log);

  SamplingChoice sampling = choose_sampling(flags.sampling, serving.model->sampling);
  for (const std::string& ignored : serving.model->sampling.ignored) serving.log->warn(ignored);
  serving.served = served_model(flags, serving, context, std::move(sampling.params));
  return LoadedConfiguration{
      .core = serving.engine->config(),
      .backend = info,
      .device = made.chosen,
      .pool_reason = size.reason,
      .host_tier = tiers.host + (host.reason.empty() ? "" : " (" + host.reason + ")"),
      .disk_tier = tiers.disk_summary,
      .shared_tier = shared_tier,
      .costs_source = costs.source,
      .hidden = disk == nullptr && hidden.percent > 0 ? "none: there is no disk" : hidden.reason,
      .sampling = std::move(sampling.text)};
}

// Loads while waiting for signals: loading can't be interrupted, so a stop then ends the process.
Result<LoadedConfiguration> load_or_leave(const ServeFlags& flags, Serving& serving,
                                          const OperatorSignals& signals) {
  auto loading = std::async(std::launch::async, [&] { return load(flags, serving); });
  while (loading.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    if (signals.stop_within(std::chrono::milliseconds(20))) {
      serving.log->info("stopped while loading");
      serving.log->flush();
      spdlog::shutdown();  // what is in the log's queue is written
      std::_Exit(0);
    }
  }
  return loading.get();
}

// Fronts read the list of members every second.
constexpr std::chrono::milliseconds kFrontsHear{1'500};

// Returns the exit code.
int drain_and_stop(const ServeFlags& flags, Serving& serving, const OperatorSignals& signals) {
  if (serving.membership) {
    // Fronts hear of it while new requests are still answered, so that none of theirs fails.
    serving.membership->drain();
    signals.stop_within(kFrontsHear);
  }
  serving.log->info("stopping: running replies may go on for {} (a second signal stops at once)",
                    format_duration(flags.drain_timeout));
  serving.services->draining.store(true);
  serving.engine->drain(flags.drain_timeout);
  while (!serving.engine->wait_drained(0)) {
    if (!signals.stop_within(std::chrono::milliseconds(20))) continue;
    serving.log->warn("stopping at once: replies are cut off");
    serving.services->stops_at_once.store(true);
    serving.server->stop(0);
    return 1;
  }
  // What the engine has said is on its way to the clients and to the store.
  const Nanos until = serving.clock.now() + 5 * kNanosPerSecond;
  while (serving.services->open_work.load() > 0 && serving.clock.now() < until) {
    if (signals.stop_within(std::chrono::milliseconds(5))) break;
  }
  serving.server->stop(5 * kNanosPerSecond);
  serving.log->info("stopped");
  return 0;
}

// The prefix that is public from the start.
Status warm_public(const ServeFlags& flags, Serving& serving) {
  if (flags.public_prefix.empty()) return {};
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text_file(flags.public_prefix));
  const std::string name = std::filesystem::path(flags.public_prefix).stem().string();
  if (Status status = check_name(name, "--public"); !status.ok()) return status;
  const Status status = warm_and_wait(serving.served, serving.public_prefixes, name, warm_body(name, text));
  return status.ok() ? status
                     : Status(status.code(), flags.public_prefix + ": " + status.message(), "--public");
}

// Who listens to others without asking who they are should know it.
void warn_of_open_doors(const ServeFlags& flags, Serving& serving) {
  const std::string& host = flags.http.host;
  const bool local = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (local || serving.tenants.has_keys()) return;
  serving.log->warn("whoever reaches {} may use this server: it has no keys (--api-keys, LOCI_API_KEY)",
                    host);
}

PageGuard page_guard(const ServeFlags& flags) {
  PageGuard::Rules rules{.origins = flags.cors_origins, .host_names = flags.allowed_hosts};
  for (const std::string& name : {flags.http.host, machine_name()}) {
    if (!name.empty()) rules.host_names.push_back(name);
  }
  return PageGuard(std::move(rules));
}

// The store of conversations, with what an earlier server left unfinished seen to.
Status open_conversations(const ServeFlags& flags, Serving& serving) {
  const std::string where = flags.store.value_or(default_store_path());
  if (where.empty()) return {};
  if (!is_store_url(where)) {
    Result<StoreClaim> claim = StoreClaim::take(where);
    if (!claim.ok()) return claim.status().with_context("--store");
    serving.store_claim = std::move(claim).value();
  }
  StoreOptions options;
  options.committed = [&metrics = serving.metrics](Nanos duration) { metrics.turn_committed(duration); };
  serving.quota_log = std::make_unique<QuotaLog>(serving.clock, StoreKeeping().period, serving.log);
  options.made_room = [&serving](std::string_view tenant, std::uint64_t gone) {
    serving.metrics.store_expired(gone);
    serving.quota_log->made_room(tenant, gone);
  };
  options.quota_of = [&tenants = serving.tenants](std::string_view tenant) {
    const std::optional<TenantLimits> limits = tenants.limits_of(tenant);
    if (!limits) return StoreQuota();
    return StoreQuota{.bytes_max = limits->stored_bytes, .threads_max = limits->stored_conversations};
  };
  Result<std::unique_ptr<ConversationStore>> store = open_store(where, options);
  if (!store.ok()) return store.status().with_context("--store");
  serving.store = std::move(store).value();
  return serving.store->fail_interrupted().with_context("--store");
}

void keep_conversations(const ServeFlags& flags, Serving& serving) {
  if (serving.store == nullptr) return;
  if (is_store_url(flags.store.value_or(""))) {
    serving.services->turn_claims =
        std::make_shared<TurnClaims>(*serving.store_thread, *serving.store, serving.log);
    serving.services->turn_claims->start(StoreOptions().turn_lease / 3);
  }
  StoreKeeping keeping;
  if (flags.store_age) keeping.limits.age_seconds_max = *flags.store_age / kNanosPerSecond;
  keeping.limits.bytes_max = flags.store_size;
  keep_store(*serving.store_thread, *serving.store, keeping, serving.metrics, serving.log);
}

int report_serve(const ServeFlags& flags, Serving& serving, const Status& status) {
  if (flags.log_format == LogFormat::kJson) {
    log(*serving.log, spdlog::level::critical,
        LogLine("the server cannot start").text("field", status.field()).text("reason", status.message()));
    return 1;
  }
  const std::string field = status.field().empty() ? "" : status.field() + ": ";
  fmt::print(stderr, "loci serve: {}{}\n", field, status.message());
  return 1;
}

// What standard output says of a server that is ready. In JSON it is lines of the log too.
void tell_ready(const ServeFlags& flags, const LoadedConfiguration& loaded, Serving& serving, Nanos loading) {
  HttpServer::Options http = flags.http;
  http.port = serving.server->port();
  if (flags.log_format == LogFormat::kText) {
    fmt::print("{}", describe_configuration(flags, loaded, serving.served));
    fmt::print("{}", describe_ready(http, serving.served, loading));
  } else {
    spdlog::logger out("loci", std::make_shared<spdlog::sinks::stdout_sink_st>());
    out.set_formatter(log_formatter(flags.log_format));
    log(out, spdlog::level::info, configuration_line(flags, loaded, serving.served));
    log(out, spdlog::level::info, ready_line(http, loading));
    out.flush();
  }
  std::fflush(stdout);
}

// With what one flag says of another.
ServeFlags completed(ServeFlags flags) {
  if (!flags.join.empty() && !flags.store) flags.store = flags.join;
  return flags;
}

// Before the model is loaded, so that a mistake shows at once.
Status open_cluster(const ServeFlags& flags, Serving& serving) {
  if (flags.join.empty()) return {};
  LOCI_RETURN_IF_ERROR(check_advertised(flags, *serving.log));
  LOCI_ASSIGN_OR_RETURN(serving.members, open_members(flags.join, flags.cluster_secret));
  return {};
}

Status join_opened(const ServeFlags& flags, Serving& serving) {
  if (!serving.members) return {};
  LOCI_ASSIGN_OR_RETURN(
      serving.membership,
      join_cluster(std::move(serving.members), flags, serving.server->port(), serving.served, serving.log));
  return {};
}

int run_serve(const Configuration& configuration) {
  const ServeFlags flags = completed(configuration.flags);
  raise_descriptor_limit();
  block_operator_signals();
  Serving serving;
  serving.log = make_logger(flags.log_format, flags.log_level);
  spdlog::set_default_logger(serving.log);  // of what knows no other
  const OperatorSignals signals(*serving.log);
  if (const Status status = open_cluster(flags, serving); !status.ok())
    return report_serve(flags, serving, status);
  if (const Status status = open_conversations(flags, serving); !status.ok())
    return report_serve(flags, serving, status);
  for (const std::string& warning : configuration.warnings) serving.log->warn(warning);
  serving.workers = std::make_unique<WorkerPool>(flags.workers);
  serving.server = std::make_unique<HttpServer>(flags.http, serving.clock, serving.metrics, serving.log);
  serving.store_thread = std::make_unique<WorkerPool>(kStoreThreads);
  serving.services.reset(new ApiServices{.options = {.pages = page_guard(flags),
                                                     .time_limit = flags.request_timeout,
                                                     .access_log = flags.access_log,
                                                     .metrics_access = flags.metrics_access},
                                         .workers = *serving.workers,
                                         .store_thread = *serving.store_thread,
                                         .store = serving.store.get(),
                                         .tenants = serving.tenants,
                                         .limiter = serving.limiter,
                                         .public_prefixes = serving.public_prefixes,
                                         .history = serving.history,
                                         .metrics = serving.metrics,
                                         .clock = serving.clock,
                                         .log = serving.log});
  KeySources keys = keys_of_environment();
  keys.file = flags.api_keys;
  if (Status status = serving.tenants.open(std::move(keys), serving.log); !status.ok())
    return report_serve(flags, serving, status);
  // By name only where not everybody reads it.
  if (flags.metrics_access == Access::kOperator || !serving.tenants.has_keys())
    serving.metrics.tell_tenants_apart();
  keep_conversations(flags, serving);
  serving.api = std::make_unique<Api>(*serving.services);
  Api& api = *serving.api;
  if (Status status = serving.server->listen([&api](Exchange& exchange) { return api.handle(exchange); });
      !status.ok()) {
    return report_serve(flags, serving, status);
  }
  warn_of_open_doors(flags, serving);
  const Nanos begin = serving.clock.now();
  const Result<LoadedConfiguration> loaded = load_or_leave(flags, serving, signals);
  if (!loaded.ok()) return report_serve(flags, serving, loaded.status());
  if (Status status = warm_public(flags, serving); !status.ok()) return report_serve(flags, serving, status);
  serving.services->served.store(&serving.served);
  if (Status status = join_opened(flags, serving); !status.ok()) return report_serve(flags, serving, status);
  tell_ready(flags, *loaded, serving, serving.clock.now() - begin);
  while (!signals.stop_within(std::chrono::milliseconds(60'000))) {
  }
  return drain_and_stop(flags, serving, signals);
}

int configure_and_serve(const ServeArguments& arguments) {
  const Result<Configuration> configuration = arguments.configuration();
  const auto refuse = [](const Status& status) {
    fmt::print(stderr, "loci serve: {}: {} (see loci serve --help)\n", status.field(), status.message());
    return 2;
  };
  if (!configuration.ok()) return refuse(configuration.status());
  if (arguments.print_config()) {
    fmt::print("{}", print_configuration(*configuration));
    return 0;
  }
  if (configuration->flags.model.empty()) {
    return refuse(invalid_argument("expected a model's file or directory, or `default`", "MODEL"));
  }
  return run_serve(*configuration);
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "serve a model over HTTP (the API of OpenAI)");
  auto arguments = std::make_shared<ServeArguments>(*command);
  command->footer(
      "A flag --some-name is LOCI_SOME_NAME in the environment and some_name of its group in the file (`loci "
      "options`).\n"
      "Examples:\n"
      "  loci serve default\n"
      "  loci serve model.gguf --port 9000 --threads 4 --device-memory 8GiB\n"
      "  loci serve OWNER/NAME-GGUF:Q4_K_M      (fetched when it is not here)\n"
      "  loci serve --model SmolLM2-135M-Instruct/ --quantize q4_k\n"
      "  loci serve default --host 0.0.0.0 --max-running 16 --log-level debug\n"
      "  loci serve default --port 9000 --print-config > loci.toml      then: loci serve --config loci.toml\n"
      "  loci serve default --event-log events.bin      then: loci replay events.bin");
  command->callback([arguments, &exit_code] {
    exit_code = configure_and_serve(*arguments);
    spdlog::shutdown();
  });
}

}  // namespace loci
