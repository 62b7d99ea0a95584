// SPDX-License-Identifier: Apache-2.0
#include "loci/server/load_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/available_memory.h"
#include "loci/base/hex.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/compute/make_backend.h"
#include "loci/engine/core/link_times.h"
#include "loci/engine/mover/capture_places.h"
#include "loci/policy/pool_size.h"
#include "loci/server/hidden_choice.h"
#include "loci/server/overflow_rule.h"
#include "loci/server/peer_state.h"
#include "loci/server/self_profile.h"
#include "loci/server/shared_tier.h"
#include "loci/server/state_tiers.h"

namespace loci {
namespace {

// Of a pass, where nobody says: as many rows as let products come near the device's rate.
constexpr std::uint32_t kPassTokensCpu = 512, kPassTokensGpu = 2048;
// No pass of a GPU takes so long. Of a CPU one may: 512 tokens of a large model on few cores.
constexpr Nanos kStallLimitGpu = 300 * kNanosPerSecond;

std::uint32_t pass_tokens(const ServerConfig& config, std::uint32_t of_device) {
  return config.max_batch_tokens != 0 ? config.max_batch_tokens : of_device;
}

Result<std::uint32_t> context_of(const ServerConfig& config, const ModelSpec& spec) {
  const std::uint32_t context = config.context_tokens == 0 ? spec.context_length : config.context_tokens;
  if (context < 2 || context > spec.context_length) {
    return invalid_argument(
        fmt::format("expected from 2 to {}, the tokens that the model was trained for; got {}",
                    spec.context_length, context),
        "context");
  }
  return context;
}

Result<std::optional<ClusterSecret>> cluster_secret_of(const ServerConfig& config) {
  if (config.cluster_secret.empty()) return std::optional<ClusterSecret>();
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(config.cluster_secret));
  return std::optional<ClusterSecret>(secret);
}

Result<MadeBackend> make_backend(const ServerConfig& config, const ModelSpec& spec, std::uint32_t context,
                                 const std::shared_ptr<spdlog::logger>& log) {
  return make_backend(spec, {.device = config.device,
                             .state_type = config.state_type,
                             .cpu = {.threads = config.threads, .instruction_set = config.instruction_set},
                             .cuda = {.deterministic = config.deterministic,
                                      .max_batch_tokens = pass_tokens(config, kPassTokensGpu),
                                      .context_tokens = context,
                                      .max_spans = config.max_running,
                                      .warn = [log](const std::string& what) { log->warn(what); }}});
}

Result<PoolSizes> choose_pool_sizes(const ServerConfig& config, const MadeBackend& made,
                                    std::uint32_t context) {
  PoolsRequest pools{.memory = made.gpu ? PoolMemory::kDevice : PoolMemory::kHost,
                     .device_bytes = config.device_memory,
                     .host_bytes = config.host_memory,
                     .device_available_bytes = made.backend->info().free_bytes,
                     .host_available_bytes = {},
                     .groups = {},
                     .context_tokens = context,
                     .max_running = config.max_running};
  if (const Result<AvailableMemory> memory = read_available_memory(""); memory.ok())
    pools.host_available_bytes = memory->bytes;
  for (const LayerGroup& group : made.backend->info().groups)
    pools.groups.push_back({group.window, group.block_bytes});
  return size_pools(pools);
}

// The pools of the device, with room to measure in; and what the first pass would pay is paid.
Status allocate_pools(const ServerConfig& config, Backend& backend, const PoolSize& size,
                      std::uint32_t context) {
  for (std::uint32_t group = 0; group < backend.info().groups.size(); ++group) {
    Status status = backend.allocate_blocks(group, size.blocks[group] + spare_slots(size.blocks));
    if (!status.ok() && status.field().empty() && config.device_memory)
      status = Status(status.code(), status.message(), "device_memory");
    LOCI_RETURN_IF_ERROR(status);
  }
  const std::uint32_t batch =
      pass_tokens(config, backend.info().name == "cpu" ? kPassTokensCpu : kPassTokensGpu);
  warm_up(backend, size.blocks, batch, context);
  return {};
}

// Takes the disk out of `tiers`.
EngineOptions engine_options(const ServerConfig& config, const ModelSpec& spec, const BackendInfo& info,
                             const PoolSize& size, StateTiers& tiers) {
  EngineOptions options;
  static_cast<PolicySet&>(options.core) = config.policies;
  options.core.layers = spec.layer_count();
  options.core.max_running = config.max_running;
  options.core.max_queued = config.max_queued;
  // (Passes that take turns are each planned when the one before has ended.)
  options.core.passes_ahead = config.policies.batch == "split" ? 0 : info.passes_ahead;
  options.core.model_fingerprint = spec.fingerprint;
  options.core.state_ttl = config.state_ttl.value_or(kNever);
  options.core.seed = config.seed;
  options.core.pass_time = config.pass_time.value_or(kNever);
  for (std::size_t i = 0; i < info.groups.size(); ++i) {
    CoreGroup group{.window = info.groups[i].window, .block_count = size.blocks[i]};
    if (!tiers.host_blocks.empty()) group.host_blocks = tiers.host_blocks[i];
    if (tiers.disk != nullptr) group.disk_blocks = tiers.disk->groups()[i].slots;
    const bool asks_others = !config.shared.empty() || takes_part_in_peers(config);
    if (asks_others) group.shared_blocks = shared_blocks_remembered(group.block_count);
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
  options.event_log_path = config.event_log;
  options.event_log_secret = config.event_log_secret ? LoggedSecret::kKept : LoggedSecret::kLeftOut;
  return options;
}

// The store, which the engine owns, must outlive the keeper's thread.
void keep_within_budget(ServerParts& parts, std::unique_ptr<DiskKeeper> keeper, DiskStore& disk) {
  parts.disk_keeper = std::move(keeper);
  parts.disk_keeper->start(
      [&disk] {
        disk.keep_locks();
        return disk.oldest_used_at();
      },
      [&disk, &engine = *parts.engine](std::uint64_t room) {
        engine.set_disk_room({.slots = disk.room(room)});
      });
}

// A GPU's memory is nobody else's.
void yield_memory(ServerParts& parts, bool on_gpu) {
  if (on_gpu || !parts.config.yield_memory) return;
  parts.memory_keeper = std::make_unique<MemoryKeeper>(*parts.engine, parts.log);
}

// What the server measures by itself where nothing was measured.
SelfProfile self_profile(const Model& model, const std::string& path, const ChosenCosts& costs,
                         const BackendInfo& info, const CoreConfig& core) {
  SelfProfile self{.path = costs.measure_into.value_or(""),
                   .batch_tokens = core.max_batch_tokens,
                   .context_tokens = core.context_tokens,
                   .only_disk = costs.lacks_disk};
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

// Gives the engine the store that servers share, if there is one; returns what it is, for people.
Result<std::string> open_shared_store(ServerParts& parts, const StateTiers& tiers, EngineOptions& options,
                                      CostCurves& costs) {
  LOCI_ASSIGN_OR_RETURN(
      SharedTier shared,
      open_shared_tier({.url = parts.config.shared,
                        .time_to_live = parts.config.shared_ttl,
                        .keys = tiers.shared_keys,
                        .backend = &parts.backend->info(),
                        .warn = [log = parts.log](const std::string& line) { log->warn(line); }},
                       parts.clock));
  options.mover.shared = std::move(shared.store);
  if (!options.mover.shared) return std::move(shared.summary);
  if (const std::optional<SharedRate> rate = options.mover.shared->first_rate())
    costs.shared_read = {rate->latency, rate->bytes_per_second};
  return std::move(shared.summary);
}

ServedModel served_model(const ServerParts& parts, std::uint32_t context, SamplingParams defaults) {
  const ServerConfig& config = parts.config;
  const auto& model = parts.model->spec.fingerprint;
  return {.model = parts.model.get(),
          .engine = parts.engine.get(),
          .backend = parts.backend->info(),
          .context_tokens = context,
          .loaded_at = seconds_since_1970(),
          .fingerprint = fmt::format("loci-{}-{}", kVersion, to_hex(std::span(model).first(4))),
          .overflow = overflow_rule(config, parts.engine->config()),
          .chat = find_chat_syntax(*parts.model),
          .defaults = {.sampling = std::move(defaults),
                       .unserved = config.lenient ? UnservedRule::kIgnore : UnservedRule::kRefuse},
          .aliases = config.aliases,
          .any_name = config.any_model};
}

// The tiers below the device, with the model's place in them.
Result<StateTiers> open_tiers(const ServerParts& parts, const std::string& path, std::uint32_t context,
                              const PoolSizes& sizes, const HiddenChoice& hidden,
                              const std::optional<ClusterSecret>& cluster_secret) {
  const ServerConfig& config = parts.config;
  LOCI_ASSIGN_OR_RETURN(
      StateTiers tiers,
      open_state_tiers({.host_bytes = sizes.host_bytes,
                        .disk = config.disk,
                        .disk_io = config.disk_io,
                        .io_limit = config.io_limit.value_or(0),
                        .default_folder = config.folders.state,
                        .backend = &parts.backend->info(),
                        .hidden_slice_bytes = hidden.slice_bytes,
                        .context_tokens = context,
                        .model_fingerprint = parts.model->spec.fingerprint,
                        .cluster_secret = cluster_secret,
                        .state_ttl = config.state_ttl.value_or(kNever),
                        .model_name = {parts.model->id, path},
                        .say = [log = parts.log](const std::string& line) { log->info(line); },
                        .warn = [log = parts.log](const std::string& line) { log->warn(line); }}));
  for (const std::string& note : tiers.notes) parts.log->info(note);
  for (const std::string& warning : tiers.warnings) parts.log->warn(warning);
  return tiers;
}

std::string hidden_text(const HiddenChoice& hidden, const DiskStore* disk) {
  if (hidden.slice_bytes == 0) return hidden.reason;
  if (disk == nullptr) return "none: there is no disk";
  const bool has = std::ranges::any_of(
      disk->groups(), [](const DiskGroup& group) { return group.form == StateForm::kHidden; });
  return has ? hidden.reason : "none: the file system of the disk cannot punch holes in files";
}

}  // namespace

Result<LoadedEngine> load_engine(ServerParts& parts, const FindModel& find_model) {
  const ServerConfig& config = parts.config;
  LOCI_ASSIGN_OR_RETURN(const std::string path,
                        find_model([&parts](const std::string& line) { parts.log->info(line); }));
  LOCI_ASSIGN_OR_RETURN(const std::optional<ClusterSecret> cluster_secret, cluster_secret_of(config));
  LOCI_RETURN_IF_ERROR(check_shared_options(config.shared, cluster_secret.has_value()));
  LOCI_ASSIGN_OR_RETURN(Model model, load_model(path, config.load));
  parts.model = std::make_unique<Model>(std::move(model));
  const ModelSpec& spec = parts.model->spec;
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t context, context_of(config, spec));
  LOCI_ASSIGN_OR_RETURN(MadeBackend made, make_backend(config, spec, context, parts.log));
  parts.log->info("device: {}{}", made.chosen, made.why.empty() ? "" : " (" + made.why + ")");
  LOCI_ASSIGN_OR_RETURN(const PoolSizes sizes, choose_pool_sizes(config, made, context));
  parts.backend = std::move(made.backend);
  const BackendInfo& info = parts.backend->info();
  LOCI_RETURN_IF_ERROR(allocate_pools(config, *parts.backend, sizes.device, context));
  const std::uint64_t io_limit = config.io_limit.value_or(0);
  const bool has_disk = !config.disk || !config.disk->empty();
  LOCI_ASSIGN_OR_RETURN(ChosenCosts costs,
                        choose_costs({.file = config.profile,
                                      .folder = config.folders.profiles,
                                      .wants_disk = has_disk && io_limit == 0},
                                     this_machine(info), spec.fingerprint, assumed_costs(info)));
  LOCI_ASSIGN_OR_RETURN(
      const HiddenChoice hidden,
      choose_hidden({.wanted = config.hidden, .save = config.policies.save, .host_bytes = sizes.host_bytes},
                    info, limited_costs(costs.curves, io_limit)));
  LOCI_ASSIGN_OR_RETURN(StateTiers tiers, open_tiers(parts, path, context, sizes, hidden, cluster_secret));
  EngineOptions options = engine_options(config, spec, info, sizes.device, tiers);
  LOCI_ASSIGN_OR_RETURN(const std::string shared_tier,
                        open_shared_store(parts, tiers, options, costs.curves));
  LOCI_ASSIGN_OR_RETURN(parts.peers,
                        open_peer_state(config, cluster_secret, spec, info, options, parts.clock, parts.log));
  if (parts.peers.server && !options.core.writes_shared) costs.curves.shared_read = kPeersAssumed;
  options.core.context_tokens = context;
  options.core.max_batch_tokens = pass_tokens(config, made.gpu ? kPassTokensGpu : kPassTokensCpu);
  options.core.costs = limited_costs(costs.curves, io_limit);
  const Nanos stall_limit = config.stall_limit.value_or(made.gpu ? kStallLimitGpu : 0);
  if (stall_limit > 0) options.stall_limit = stall_limit;
  options.core.hidden.share = hidden.share;
  options.core.hidden.follows = hidden.follows;
  options.capture_places = capture_places(options.core);
  if (costs.lacks_disk && tiers.disk_folder.empty()) costs.measure_into.reset();
  SelfProfile self = self_profile(*parts.model, path, costs, info, options.core);
  self.profile.disk_directory = tiers.disk_folder;
  self.io_limit = io_limit;
  DiskStore* disk = options.mover.disk.get();
  LOCI_ASSIGN_OR_RETURN(parts.engine, Engine::start(std::move(options), *parts.backend, parts.clock));
  parts.peers.start(*parts.engine);
  yield_memory(parts, made.gpu.has_value());
  if (disk != nullptr) keep_within_budget(parts, std::move(tiers.keeper), *disk);
  if (costs.measure_into) profile_when_idle(std::move(self), *parts.backend, *parts.engine, parts.log);

  SamplingChoice sampling = choose_sampling(config.sampling, parts.model->sampling);
  for (const std::string& ignored : parts.model->sampling.ignored) parts.log->warn(ignored);
  parts.served = served_model(parts, context, std::move(sampling.params));
  return LoadedEngine{
      .core = parts.engine->config(),
      .backend = info,
      .stall_limit = stall_limit,
      .device = made.chosen,
      .pool_reason = sizes.device.reason,
      .host_tier = tiers.host + (sizes.host_reason.empty() ? "" : " (" + sizes.host_reason + ")"),
      .disk_tier = tiers.disk_summary,
      .shared_tier = shared_tier,
      .peer_port = parts.peers.port(),
      .costs_source = costs.source,
      .hidden = hidden_text(hidden, disk),
      .sampling = std::move(sampling.text)};
}

}  // namespace loci
