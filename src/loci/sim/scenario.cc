// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "loci/policy/hidden_share.h"
#include "loci/policy/pool_split.h"
#include "loci/server/hidden_choice.h"
#include "loci/server/profile/profile_file.h"
#include "loci/sim/agenda.h"
#include "loci/sim/fields.h"
#include "loci/sim/json_text.h"
#include "loci/sim/machine_file.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/scenario_baseline.h"
#include "loci/sim/talk.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr double kMost = 1e18;
constexpr Nanos kNanosPerMicro = 1'000;
constexpr std::uint64_t kBlocksMax = std::uint64_t{1} << 24;  // of a tier: 537 million tokens
constexpr std::uint64_t kDeviceBlocksPreset = 1024;           // 32,768 tokens
// Bytes of this machine's memory, of a block of the core's index and of one whose prefix is remembered as
// seen.
constexpr std::uint64_t kBytesOfBlock = 700, kBytesOfSeen = 40;
constexpr std::uint64_t kBytesOfAllocation = 16;  // beside what is asked for
// Of a request: its turn (twice, since lists of turns grow by halves), what is recorded of it, that it is
// due, and the figures from which the report is made.
constexpr std::uint64_t kBytesOfRequest =
    2 * sizeof(Turn) + kBytesOfAllocation + sizeof(RequestRecord) + sizeof(Happening) + 6 * sizeof(double);
constexpr std::uint64_t kBytesOfConversation =
    sizeof(Conversation) + kBytesOfAllocation + sizeof(Talk) + kBytesOfAllocation + sizeof(std::uint32_t);

// What a scenario says beside its requests.
constexpr const char* kFieldsOfRuns[] = {"name",    "comment", "model",  "processors", "efficiency",
                                         "machine", "links",   "memory", "engine",     "belief",
                                         "warm_up", "steady",  "check",  "cluster",    "faults"};

template <class Presets>
std::string names_of(const Presets& presets) {
  std::string names;
  for (const auto& preset : presets) names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

void read_model(Fields& fields, ModelShape& model) {
  if (!fields.has("model"))
    return fields.wrong("model", "one of " + names_of(model_presets()) + ", or an object that describes one",
                        "nothing");
  const Json& json = fields.raw("model");
  if (json.is_string()) {
    for (const ModelShape& preset : model_presets()) {
      if (preset.name == json.get<std::string>()) {
        model = preset;
        return;
      }
    }
    return fields.wrong("model", "one of " + names_of(model_presets()), shown(json));
  }
  Fields own = fields.object("model");
  own.read("name", model.name);
  double billions = 0;
  own.read("parameters_billions", billions, 1e-6, 1e5);
  model.parameters = billions * 1e9;
  model.weight_bytes = 2 * model.parameters;
  own.read("weight_bytes", model.weight_bytes, 1, kMost);
  own.read("layers", model.layers, 1, 1000);
  own.read("width", model.width, 1, 1u << 20);
  own.read("state_width", model.state_width, 1, 1u << 20);
  own.read("state_bytes", model.state_bytes, 1, 8);
  own.read("context_tokens", model.context_tokens, 2, kTraceTokensMax);
  own.read("hidden_row_bytes", model.hidden_row_bytes, 1, 1u << 24);
  if (billions == 0) own.wrong("parameters_billions", "a number", "nothing");
  own.finish();
}

// What `loci profile` measured.
void read_measured(const std::string& path, Fields& fields, Machine& machine) {
  const Result<CostProfile> profile = [&]() -> Result<CostProfile> {
    // The reader of profiles does not limit levels.
    const Result<std::string> text = read_text(path);
    if (text.ok()) LOCI_RETURN_IF_ERROR(parse_scenario_text(*text, path).status());
    return read_profile(path);
  }();
  if (!profile.ok())
    return fields.wrong("machine.profile", "a file of `loci profile`", profile.status().message());
  machine.name = path;
  machine.host_load = profile->curves.host_load;
  machine.host_save = profile->curves.host_save;
  machine.disk_read = profile->curves.disk_read;
  machine.disk_write = profile->curves.disk_write;
  machine.passes = profile->passes;
  machine.measured = profile->curves;
}

// Reads a machine that is given as an object: it names a file with the machine's peaks, or one with what was
// measured on it.
void read_described(Fields& fields, std::uint32_t processors, const Efficiency& efficiency,
                    Machine& machine) {
  Fields own = fields.object("machine");
  std::string profile, file;
  own.read("profile", profile);
  own.read("file", file);
  own.finish();
  if (!profile.empty() && !file.empty())
    return own.wrong("profile", "nothing beside file", "'" + profile + "'");
  if (!profile.empty()) return read_measured(profile, fields, machine);
  if (file.empty())
    return own.wrong(
        "profile",
        "a file of `loci profile`, or 'file' with a machine's peaks, or a machine's name instead of "
        "the object",
        "nothing");
  const Result<MachinePreset> preset = read_machine_file(file);
  if (!preset.ok()) return own.wrong("file", "a file with a machine's peaks", preset.status().message());
  machine = machine_of(*preset, processors, efficiency);
  machine.name = file;
}

void read_link(Fields& fields, const char* name, LinkCost& link) {
  if (!fields.has(name)) return;
  double rate = static_cast<double>(link.bytes_per_second) / 1e9;
  fields.read(name, rate, 1e-6, 1e6);
  link.bytes_per_second = static_cast<std::uint64_t>(rate * 1e9);
}

// A profile has measured what the machine reaches, whatever its processors.
void refuse_rates(Fields& fields) {
  const char* const expected = "nothing, since the machine's profile has measured it";
  if (fields.has("processors")) fields.wrong("processors", expected, shown(fields.raw("processors")));
  Fields reached = fields.object("efficiency");
  for (const char* name : {"products", "attention", "memory", "projection"}) {
    if (reached.has(name)) reached.wrong(name, expected, shown(reached.raw(name)));
  }
}

void read_time(Fields& fields, const char* name, Nanos unit, Nanos& time) {
  double count = static_cast<double>(time) / static_cast<double>(unit);
  fields.read(name, count, 0, 1e9);
  time = static_cast<Nanos>(std::llround(count * static_cast<double>(unit)));
}

void read_machine(Fields& fields, Machine& machine) {
  if (!fields.has("machine"))
    return fields.wrong("machine",
                        "one of " + names_of(machine_presets()) +
                            ", or an object that names a file with a machine's peaks or of `loci profile`",
                        "nothing");
  std::uint32_t processors = 1;
  fields.read("processors", processors, 1, 100'000);
  Efficiency efficiency;
  double fixed_ms = 0;
  if (fields.raw("machine").is_object() && fields.raw("machine").contains("profile")) refuse_rates(fields);
  Fields reached = fields.object("efficiency");
  reached.read("products", efficiency.products, 1e-3, 1);
  reached.read("attention", efficiency.attention, 1e-4, 1);
  reached.read("memory", efficiency.memory, 1e-3, 1);
  reached.read("projection", efficiency.projection, 1e-3, 1);
  std::string projects = "in-passes";
  reached.read("projects", projects, {"in-passes", "on-arrival"});
  reached.read("fixed_ms", fixed_ms, 0, 1e6);
  reached.finish();
  const Json& json = fields.raw("machine");
  if (json.is_object()) {
    read_described(fields, processors, efficiency, machine);
  } else {
    const auto presets = machine_presets();
    const auto found = std::find_if(presets.begin(), presets.end(), [&](const MachinePreset& preset) {
      return json.is_string() && preset.name == json.get<std::string>();
    });
    if (found == presets.end()) return fields.wrong("machine", "one of " + names_of(presets), shown(json));
    machine = machine_of(*found, processors, efficiency);
  }
  machine.fixed = static_cast<Nanos>(std::llround(fixed_ms * 1e6));
  if (projects == "on-arrival") machine.projecting = Projecting::kOnArrival;
  Fields links = fields.object("links");
  read_link(links, "host_load_gb_s", machine.host_load);
  read_link(links, "host_save_gb_s", machine.host_save);
  read_link(links, "disk_read_gb_s", machine.disk_read);
  read_link(links, "disk_write_gb_s", machine.disk_write);
  links.read("duplex_percent", machine.duplex_percent, 1, 100);
  links.read("disk_shared", machine.disk_shared);
  std::string saving = "two-stage";
  links.read("hidden_saving", saving, {"two-stage", "direct"});
  if (saving == "direct") machine.hidden_saving = HiddenSaving::kDirect;
  read_time(links, "small_write_us", kNanosPerMicro, machine.small_write);
  links.finish();
}

// Blocks of a tier: by its bytes or by tokens.
std::uint32_t blocks_of(Fields& fields, const char* gigabytes, const char* tokens, std::uint64_t block_bytes,
                        std::uint64_t preset) {
  double size = 0;
  std::uint64_t count = preset * kBlockTokens;
  fields.read(gigabytes, size, 0, 1e9);
  if (size > 0 || (fields.has(gigabytes) && !fields.has(tokens))) {
    if (fields.has(tokens))
      fields.wrong(tokens, fmt::format("nothing beside {}", gigabytes), shown(fields.raw(tokens)));
    const double blocks = size * 1e9 / static_cast<double>(block_bytes);
    if (blocks > static_cast<double>(kBlocksMax))
      fields.wrong(gigabytes,
                   fmt::format("room for at most {} blocks of {} tokens", kBlocksMax, kBlockTokens),
                   fmt::format("{:.0f}", blocks));
    count = static_cast<std::uint64_t>(std::min(blocks, static_cast<double>(kBlocksMax))) * kBlockTokens;
  }
  fields.read(tokens, count, 0, kBlocksMax * kBlockTokens);
  return static_cast<std::uint32_t>(count / kBlockTokens);
}

void read_memory(Fields fields, WorldOptions& world) {
  const ModelShape& model = world.model;
  CoreGroup group;
  group.block_bytes = model.token_bytes() * kBlockTokens;
  group.block_count = blocks_of(fields, "device_gb", "device_tokens", group.block_bytes, kDeviceBlocksPreset);
  if (group.block_count == 0) {
    const char* const field = fields.has("device_tokens") ? "device_tokens" : "device_gb";
    fields.wrong(field, fmt::format("room for at least one block of {} tokens", kBlockTokens),
                 shown(fields.raw(field)));
  }
  group.host_blocks = blocks_of(fields, "host_gb", "host_tokens", group.block_bytes, 0);
  group.disk_blocks = blocks_of(fields, "disk_gb", "disk_tokens", group.block_bytes, 0);
  fields.read("device_keeps", world.device_keeps);
  fields.finish();
  world.core.groups = {group};
  world.core.hole_records = group.disk_blocks / 4;
}

// `hidden`: which share of the blocks the disk is to hold as hidden states, as a server's option.
std::optional<ScenarioBaseline> read_engine(Fields fields, WorldOptions& world, std::string& hidden) {
  CoreConfig& core = world.core;
  std::optional<ScenarioBaseline> baseline = read_policies(fields, core);
  fields.read("hidden", hidden, {"off", "auto", "on"});
  if (hidden != "off" && baseline) fields.wrong("hidden", "off beside a baseline, which has none", hidden);
  fields.read("batch_tokens", core.max_batch_tokens, 1, 1u << 20);
  fields.read("running", core.max_running, 1, 1u << 16);
  core.max_queued = UINT32_MAX / 2;
  fields.read("queued", core.max_queued, 1, UINT32_MAX / 2);
  core.context_tokens = world.model.context_tokens;
  fields.read("context_tokens", core.context_tokens, 2, kTraceTokensMax);
  fields.read("saves", core.saves_max, 1, 1u << 20);
  double ttl = 0, deadline = 0, pass_time = 0;
  fields.read("pass_time_ms", pass_time, 0, 1e9);
  if (pass_time > 0) core.pass_time = static_cast<Nanos>(pass_time * 1e6);
  fields.read("state_ttl_s", ttl, 0, 1e9);
  if (ttl > 0) core.state_ttl = static_cast<Nanos>(ttl * 1e9);
  fields.read("deadline_s", deadline, 0, 1e9);
  if (deadline > 0) world.deadline = static_cast<Nanos>(deadline * 1e9);
  fields.read("stateless", world.stateless);
  fields.read("split_passes", world.machine.split_passes);
  std::string overflow = baseline && baseline->set.truncates ? "truncate" : "stop";
  fields.read("overflow", overflow, {"stop", "truncate", "cut"});
  world.overflow = overflow == "truncate" ? Overflow::kTruncate
                   : overflow == "cut"    ? Overflow::kCut
                                          : Overflow::kStop;
  fields.finish();
  core.layers = world.model.layers;
  return baseline;
}

// Believed costs: the real ones times these.
void read_belief(Fields fields, WorldOptions& world) {
  double compute = 1, host = 1, disk = 1, projection = 1;
  fields.read("compute", compute, 1e-3, 1e3);
  fields.read("host", host, 1e-6, 1e6);
  fields.read("disk", disk, 1e-6, 1e6);
  fields.read("projection", projection, 1e-3, 1e3);
  fields.finish();
  CostCurves curves = PassModel(world.model, world.machine).curves();
  const auto times = [](Nanos& cost, double by) {
    cost = static_cast<Nanos>(static_cast<double>(cost) * by);
  };
  times(curves.token, compute);
  times(curves.pass, compute);
  times(curves.projection, projection);
  for (Nanos& cost : curves.attention) times(cost, compute);
  const auto slower = [&](LinkCost& link, double by) {
    times(link.latency, by);
    const double rate = static_cast<double>(link.bytes_per_second) / by;
    link.bytes_per_second = static_cast<std::uint64_t>(std::clamp(rate, 1.0, 1e18));
  };
  slower(curves.host_load, host);
  slower(curves.host_save, host);
  slower(curves.disk_read, disk);
  slower(curves.disk_write, disk);
  world.core.costs = std::move(curves);
}

// The bytes of the disk, which are of keys and values so far, are for both forms, as a server's.
void share_disk(const HiddenShare& share, std::uint64_t hidden_bytes, CoreConfig& core) {
  const CoreGroup& group = core.groups.front();
  const double bytes = static_cast<double>(group.disk_blocks) * static_cast<double>(group.block_bytes);
  const double blocks = std::min(bytes / static_cast<double>(hidden_bytes), static_cast<double>(kBlocksMax));
  core.hidden = {
      .disk_blocks = static_cast<std::uint32_t>(blocks), .block_bytes = hidden_bytes, .share = share};
  core.hole_records = core.hidden.disk_blocks / 4;
}

// As a server chooses, by what the core believes that projecting costs (server/hidden_choice.h).
void choose_hidden_share(const std::string& wanted, Fields& fields, WorldOptions& world) {
  const CoreGroup& group = world.core.groups.front();
  if (wanted == "off" || group.disk_blocks == 0) {
    if (wanted == "on") fields.wrong("engine.hidden", "a disk (memory.disk_gb) for them", wanted);
    return;
  }
  const std::uint32_t layers = world.model.layers;
  BackendInfo info;
  info.layers = layers;
  info.projects = true;
  info.hidden_row_bytes = world.model.hidden_token_bytes() / layers;
  info.block_bytes = group.block_bytes;
  LayerGroup all;
  all.layer_slice_bytes = group.block_bytes / layers;
  info.groups = {all};
  const Result<HiddenChoice> choice =
      choose_hidden({.wanted = wanted,
                     .save = world.core.save,
                     .host_bytes = std::uint64_t{group.host_blocks} * group.block_bytes},
                    info, world.core.costs);
  if (!choice.ok())
    return fields.wrong("engine.hidden", "off or auto (" + choice.status().message() + ")", wanted);
  if (choice->share.percent == 0) return;
  if (world.core.costs.projection == 0)
    return fields.wrong("engine.hidden", "a profile that has measured projecting (`loci profile`)", wanted);
  share_disk(choice->share, choice->slice_bytes * layers, world.core);
}

void read_shape(Fields fields, ConversationShape& shape) {
  fields.read("turns_mean", shape.turns_mean, 1, 1e4);
  fields.read("single_share", shape.single_share, 0, 0.999);
  fields.read("input_mean", shape.input_mean, 1, 1e6);
  fields.read("reply_mean", shape.reply_mean, 1, 1e6);
  fields.read("sigma", shape.sigma, 0, 5);
  fields.read("level_sigma", shape.level_sigma, 0, 5);
  fields.read("turns_sigma", shape.turns_sigma, 0, 5);
  fields.finish();
}

void read_cluster(Fields fields, ClusterOptions& cluster) {
  fields.read("instances", cluster.instances, 1, kInstancesMax);
  fields.read("fronts", cluster.fronts, 1, kFrontsMax);
  std::string policy = "first-token";
  fields.read("policy", policy, {"first-token", "prompt-tree", "session", "least-load"});
  cluster.policy = parse_routing_policy(policy).value_or(RoutingPolicy::kFirstToken);
  fields.read("prefills", cluster.prefills, 0, kInstancesMax);
  std::string handover = "predicted";
  fields.read("handover", handover, {"predicted", "always"});
  cluster.handover = parse_handover(handover).value_or(Handover::kPredicted);
  std::string remembers = "begun";
  fields.read("remembers", remembers, {"begun", "ended"});
  cluster.remembers = remembers == "ended" ? Remembers::kEnded : Remembers::kBegun;
  fields.read("reads_early", cluster.reads_early);
  fields.read("peers", cluster.peers);
  fields.read("prefills_read", cluster.prefills_read);
  read_link(fields, "network_gb_s", cluster.network);
  read_time(fields, "network_latency_ms", kNanosPerMilli, cluster.network.latency);
  std::uint32_t rounds = cluster.peer_rounds;
  fields.read("peer_rounds", rounds, 1, kPeerRoundsMax);
  cluster.peer_rounds = static_cast<std::uint8_t>(rounds);
  fields.finish();
}

// After a baseline has refused what it lacks.
void check_prefills(const ClusterOptions& cluster, Fields& scenario) {
  if (cluster.prefills == 0) return;
  if (!cluster.peers)
    scenario.wrong("cluster.peers", "true, since decode members read what the prefill members compute",
                   "false");
  if (cluster.prefills >= cluster.instances)
    scenario.wrong("cluster.prefills", fmt::format("fewer than the {} instances", cluster.instances),
                   std::to_string(cluster.prefills));
}

// Of each instance.
void read_faults(Fields fields, FaultOptions& faults) {
  read_time(fields, "well_s", kNanosPerSecond, faults.well);
  read_time(fields, "ill_s", kNanosPerSecond, faults.ill);
  fields.read("slow", faults.slow, 1, 1e6);
  fields.read("fails", faults.fails, 0, 1);
  read_time(fields, "restarts_s", kNanosPerSecond, faults.restarts);
  read_time(fields, "away_s", kNanosPerSecond, faults.away);
  fields.read("disk_lost", faults.disk_lost, 0, 1);
  if (fields.has("disk_slow_at_s")) {
    faults.disk_slow_at = 0;
    read_time(fields, "disk_slow_at_s", kNanosPerSecond, faults.disk_slow_at);
    faults.disk_limit = kDiskLimit;
  }
  fields.read("disk_speed", faults.disk_speed, 0, 1);
  if (faults.disk_speed < 1 && faults.disk_slow_at == kNever)
    fields.wrong("disk_slow_at_s", "when the disk becomes slow", "nothing");
  if ((faults.ill > 0 || faults.slow > 1 || faults.fails > 0) && faults.well == 0)
    fields.wrong("well_s", "how long a link stays well in the mean", "nothing");
  if ((faults.away > 0 || faults.disk_lost > 0) && faults.restarts == 0)
    fields.wrong("restarts_s", "the mean time until a process ends", "nothing");
  fields.finish();
}

void read_workload(Fields fields, WorkloadOptions& workload) {
  fields.read("kind", workload.kind);
  workload = workload_of_kind(workload.kind);
  fields.read("conversations", workload.conversations, 1, kTraceRequestsMax);
  fields.read("rate", workload.rate, 1e-9, 1e9);
  fields.read("think_s", workload.think_s, 0, 1e9);
  fields.read("think", workload.think, {"exponential", "constant"});
  fields.read("tokens_max", workload.tokens_max, 0, kTraceTokensMax);
  fields.read("contexts", workload.contexts, 1, 1u << 24);
  fields.read("context_tokens", workload.context_tokens, 1, kTraceTokensMax);
  fields.read("body_tokens", workload.body_tokens, 1, kTraceTokensMax);
  fields.read("reply_tokens", workload.reply_tokens, 1, kTraceTokensMax);
  fields.read("tasks", workload.tasks, 1, 1'000'000);
  fields.read("copies", workload.copies, 1, kTraceTokensMax);
  fields.read("zipf", workload.zipf, 0, 10);
  if (fields.has("shape")) {
    if (workload.kind != "conversations")
      fields.wrong("shape", "the kind 'conversations' beside it, or nothing", "'" + workload.kind + "'");
    read_shape(fields.object("shape"), workload.shape);
  }
  fields.finish();
}

// `seed`: the scenario's.
void read_trace_source(Fields trace, std::uint64_t seed, TraceSource& source) {
  trace.read("file", source.file);
  trace.read("format", source.format, trace_formats());
  trace.read("requests", source.requests, 0, kTraceRequestsMax);
  trace.read("time_scale", source.time_scale, 1e-9, 1e9);
  trace.read("rate", source.rate, 1e-9, 1e9);
  trace.read("from_s", source.from_s, 0, 1e9);
  trace.read("model", source.model);
  source.seed = seed;
  for (const char* name : {"format", "requests", "time_scale", "rate", "from_s", "model"}) {
    if (source.file.empty() && trace.has(name))
      trace.wrong(name, "'file' beside it, or nothing", shown(trace.raw(name)));
  }
  for (const auto& [name, format] : kTraceFieldsOfFormats) {
    if (source.format != format && trace.has(name))
      trace.wrong(name, fmt::format("the format {} beside it, or nothing", format), shown(trace.raw(name)));
  }
  trace.finish();
}

}  // namespace

Result<Json> parse_scenario_text(const std::string& text, const std::string& file) {
  JsonRead<Json> read = read_json_file(text);
  if (read.ok()) return std::move(read.value);
  if (read.fault == JsonFault::kLimit)
    return invalid_argument(fmt::format("{}: expected {}, found {}", file, levels_expected(), kLevelsFound),
                            "scenario");
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(read.byte, text.size()));
  return invalid_argument(
      fmt::format("{}:{}: expected JSON, found {}", file, 1 + std::count(text.begin(), end, '\n'), read.what),
      "scenario");
}

Status set_field(Json& json, const std::string& path, const std::string& value) {
  if (std::cmp_greater_equal(std::ranges::count(path, '.'), kJsonLevelsMax))
    return invalid_argument(
        fmt::format("{}: expected {}, found {}", path.substr(0, 40), levels_expected(), kLevelsFound), "set");
  Json* at = &json;
  for (std::size_t begin = 0;;) {
    const std::size_t end = path.find('.', begin);
    const std::string name = path.substr(begin, end == std::string::npos ? end : end - begin);
    if (name.empty() || (!at->is_object() && !at->is_null()))
      return invalid_argument(fmt::format("expected FIELD.FIELD=VALUE, found '{}={}'", path, value), "set");
    at = &(*at)[name];
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  JsonRead<Json> read = read_json_file(value);
  if (read.fault == JsonFault::kLimit)
    return invalid_argument(fmt::format("{}: expected {}, found {}", path, levels_expected(), kLevelsFound),
                            "set");
  *at = read.ok() ? std::move(read.value) : Json(value);
  return {};
}

Result<Scenario> parse_scenario(const Json& json, const std::string& file) {
  Status status;
  Fields fields(json, file, "", status);
  Scenario scenario{.file = file};
  fields.read("name", scenario.name);
  std::string comment;
  fields.read("comment", comment);
  WorldOptions& world = scenario.world;
  read_model(fields, world.model);
  read_machine(fields, world.machine);
  read_memory(fields.object("memory"), world);
  std::string hidden = "off";
  scenario.baseline = read_engine(fields.object("engine"), world, hidden);
  read_belief(fields.object("belief"), world);
  choose_hidden_share(hidden, fields, world);
  if (fields.has("cluster")) {
    world.cluster.instances = 4;
    world.cluster.peers = !scenario.baseline;
    read_cluster(fields.object("cluster"), world.cluster);
  }
  if (scenario.baseline) refuse_contradictions(*scenario.baseline, world, fields);
  check_prefills(world.cluster, fields);
  read_faults(fields.object("faults"), world.faults);
  if (world.faults.away > 0 && world.cluster.instances == 0)
    fields.wrong("faults.away_s", "'cluster' beside it, or nothing", shown(fields.raw("faults")["away_s"]));
  read_workload(fields.object("workload"), scenario.workload);
  fields.read("warm_up", world.warm_up, 0, kTraceRequestsMax);
  fields.read("steady", world.steady);
  fields.read("seed", scenario.workload.seed, 0, UINT64_MAX);
  read_trace_source(fields.object("trace"), scenario.workload.seed, scenario.trace);
  world.core.seed = world.faults.seed = scenario.workload.seed;
  fields.read("check", world.check);
  fields.finish();
  LOCI_RETURN_IF_ERROR(status);
  return scenario;
}

Result<Scenario> parse_requests(const Json& json, const std::string& file) {
  Status status;
  Fields fields(json, file, "", status);
  Scenario scenario{.file = file};
  for (const char* name : kFieldsOfRuns) fields.has(name);
  read_workload(fields.object("workload"), scenario.workload);
  fields.read("seed", scenario.workload.seed, 0, UINT64_MAX);
  read_trace_source(fields.object("trace"), scenario.workload.seed, scenario.trace);
  fields.finish();
  LOCI_RETURN_IF_ERROR(status);
  return scenario;
}

Result<Trace> load_trace(const Scenario& scenario) {
  if (!scenario.trace.file.empty()) return read_source(scenario.trace);
  Result<Trace> trace = make_workload(scenario.workload);
  if (!trace.ok()) return trace.status().with_context(scenario.file);
  return trace;
}

std::uint64_t memory_estimate(const Trace& trace, const WorldOptions& options) {
  std::uint64_t all_tokens = 0, kept_tokens = 0, seen_tokens = 0, requests = 0, pieces = 0;
  const std::vector<bool> shares_first_turn = sharing_first_turns(trace);
  for (std::size_t c = 0; c < trace.conversations.size(); ++c) {
    const Conversation& conversation = trace.conversations[c];
    std::uint64_t length = 0, longest = 0;  // in tokens, of the conversation so far
    for (const Turn& turn : conversation.turns) {
      ++requests;
      pieces += turn.pieces.size() + turn.reply.size();
      const std::uint64_t tokens = turn.reply_tokens + tokens_of(turn.pieces);
      all_tokens += tokens;
      length = tokens + (turn.appends ? length : 0);
      longest = std::max(longest, length);
      if (!turn.appends || shares_first_turn[c]) seen_tokens += tokens;
    }
    kept_tokens += longest;
  }
  const CoreGroup& group = options.core.groups.front();
  const std::uint64_t slots = (std::uint64_t{group.block_count} + group.host_blocks +
                               std::max(group.disk_blocks, options.core.hidden.disk_blocks)) *
                              std::max(1u, options.cluster.instances);
  return std::min(slots, all_tokens / kBlockTokens * 2) * kBytesOfBlock +
         seen_tokens / kBlockTokens * kBytesOfSeen + kept_tokens * sizeof(TokenId) +
         requests * kBytesOfRequest + trace.conversations.size() * kBytesOfConversation +
         pieces * sizeof(Piece);
}

}  // namespace loci::sim
