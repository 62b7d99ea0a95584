// SPDX-License-Identifier: Apache-2.0
// `loci sim`: what a server would do on a machine that is only described.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/result_file.h"
#include "loci/cli/sim_advice.h"
#include "loci/sim/json_text.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/report.h"
#include "loci/sim/scenario.h"
#include "loci/sim/trace_writer.h"

namespace loci {
namespace {

constexpr unsigned kAdviceSeconds = 295;  // of the five minutes that advice takes at most

struct SimFlags {
  std::string scenario;
  std::string model, machine, trace;
  std::vector<std::string> sets;
  std::string from_log, export_to;
  std::string output, event_log, memory_limit;
  bool list = false;
  AdviceFlags advice;
};

std::atomic<bool> stop_requested{false};
std::atomic<bool> interrupted{false};

void request_stop(int signal) {
  interrupted.store(signal == SIGINT);
  stop_requested.store(true);
}

int fail(const Status& status) {
  fmt::print(stderr, "loci sim: {}\n", printable(status.message(), LineEnds::kReplace));
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotFound ||
                 status.code() == StatusCode::kDataLoss
             ? 2
             : 1;
}

// What errors blame.
std::string scenario_name(const SimFlags& flags) {
  if (!flags.scenario.empty()) return flags.scenario;
  return flags.sets.empty() ? "the scenario" : "--set";
}

// A machine is one that is known by name, or else a file: with a machine's peaks, or of `loci profile`, which
// says what its format is.
nlohmann::json machine_named(const std::string& name) {
  const auto presets = sim::machine_presets();
  const bool known = std::any_of(presets.begin(), presets.end(),
                                 [&](const sim::MachinePreset& one) { return one.name == name; });
  std::error_code error;  // such as that no file has so long a name
  if (known || !std::filesystem::exists(name, error)) return name;
  const Result<std::string> text = sim::read_text(name);
  const nlohmann::json json = text.ok() ? sim::read_json_file(*text).value : nlohmann::json();
  return {{json.contains("format") ? "profile" : "file", name}};
}

Status set_names(const SimFlags& flags, nlohmann::json& json) {
  if (!json.is_object()) return {};  // refused when its fields are read
  if (!flags.model.empty()) json["model"] = flags.model;
  if (!flags.machine.empty()) json["machine"] = machine_named(flags.machine);
  const std::string& trace = flags.from_log.empty() ? flags.trace : flags.from_log;
  if (trace.empty()) return {};
  if (json.contains("trace") && !json["trace"].is_object())
    return invalid_argument(fmt::format("{}: trace: expected an object, found {}", scenario_name(flags),
                                        json["trace"].type_name()),
                            "trace");
  json["trace"]["file"] = trace;
  if (!flags.from_log.empty()) json["trace"]["format"] = "log";
  return {};
}

// The file with what the flags set.
Result<nlohmann::json> fields_of(const SimFlags& flags) {
  nlohmann::json json = nlohmann::json::object();
  if (!flags.scenario.empty()) {
    LOCI_ASSIGN_OR_RETURN(const std::string text, sim::read_text(flags.scenario));
    LOCI_ASSIGN_OR_RETURN(json, sim::parse_scenario_text(text, flags.scenario));
  }
  for (const std::string& set : flags.sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos)
      return invalid_argument(fmt::format("--set: expected FIELD.FIELD=VALUE, found '{}'", set), "--set");
    LOCI_RETURN_IF_ERROR(
        sim::set_field(json, set.substr(0, equals), set.substr(equals + 1)).with_context("--set"));
  }
  LOCI_RETURN_IF_ERROR(set_names(flags, json));
  return json;
}

// Writes the requests instead of running them.
Status export_trace(const SimFlags& flags, const nlohmann::json& json) {
  LOCI_ASSIGN_OR_RETURN(const sim::Scenario scenario, sim::parse_requests(json, scenario_name(flags)));
  LOCI_ASSIGN_OR_RETURN(const sim::Trace trace, sim::load_trace(scenario));
  LOCI_RETURN_IF_ERROR(sim::write_trace(trace, flags.export_to));
  for (const std::string& note : trace.notes) fmt::print("workload: {}\n", note);
  fmt::print("{} requests of {} conversations written to {}\n", format_count(trace.requests()),
             format_count(trace.conversations.size()), flags.export_to);
  return {};
}

Status check_memory(const SimFlags& flags, const sim::Trace& trace, const sim::WorldOptions& options) {
  if (flags.memory_limit.empty()) return {};
  const Result<std::uint64_t> limit = parse_bytes(flags.memory_limit, "--memory-limit");
  if (!limit.ok()) return limit.status().with_context("--memory-limit");
  const std::uint64_t needs = sim::memory_estimate(trace, options);
  if (needs <= *limit) return {};
  return invalid_argument(
      fmt::format("--memory-limit: expected a run of at most {}, found one that needs about {}: "
                  "take fewer requests or smaller tiers",
                  format_bytes(*limit), format_bytes(needs)),
      "--memory-limit");
}

// A log is of one process, from its beginning.
Status check_log(const SimFlags& flags, const sim::WorldOptions& options) {
  const bool has_fronts = options.cluster.instances > 0;
  if (flags.event_log.empty() || (!has_fronts && options.faults.restarts == 0)) return {};
  return invalid_argument(
      fmt::format(
          "--event-log: expected one server without restarts, since a log is of one process, found {}",
          has_fronts ? "a cluster" : "faults.restarts_s"),
      "--event-log");
}

// Costs and shapes as this program has them, for what computes figures from them.
void print_presets() {
  nlohmann::ordered_json json;
  for (const sim::ModelShape& model : sim::model_presets()) {
    json["models"][model.name] = {{"parameters", model.parameters},
                                  {"layers", model.layers},
                                  {"width", model.width},
                                  {"state_width", model.state_width},
                                  {"token_bytes", model.token_bytes()},
                                  {"context_tokens", model.context_tokens}};
  }
  for (const sim::MachinePreset& machine : sim::machine_presets()) {
    json["machines"][std::string(machine.name)] = {
        {"peak_flops", machine.peak_flops},     {"memory_bandwidth", machine.memory_bandwidth},
        {"memory_bytes", machine.memory_bytes}, {"link_bandwidth", machine.link_bandwidth},
        {"disk_read", machine.disk_read},       {"disk_write", machine.disk_write}};
  }
  json["workloads"] = sim::workload_kinds();
  fmt::print("{}\n", json.dump(1));
}

int advise_sizes(const SimFlags& flags, const nlohmann::json& json) {
  AdviceCommand command{.scenario = json,
                        .file = scenario_name(flags),
                        .flags = flags.advice,
                        .output = flags.output,
                        .load = sim::load_trace,
                        .check_memory = [&](const sim::Trace& trace, const sim::WorldOptions& options) {
                          return check_memory(flags, trace, options);
                        }};
  std::signal(SIGINT, request_stop);
  std::signal(SIGALRM, request_stop);
  alarm(kAdviceSeconds);
  const Result<bool> found = run_advice(std::move(command), stop_requested);
  if (!found.ok()) return fail(found.status());
  if (interrupted) return 130;
  return *found ? 0 : 1;
}

int run_sim(const SimFlags& flags) {
  if (flags.list) {
    print_presets();
    return 0;
  }
  const Result<nlohmann::json> json_in = fields_of(flags);
  if (!json_in.ok()) return fail(json_in.status());
  if (!flags.export_to.empty()) {
    const Status written = export_trace(flags, *json_in);
    return written.ok() ? 0 : fail(written);
  }
  if (flags.advice.wanted) return advise_sizes(flags, *json_in);
  Result<sim::Scenario> scenario = sim::parse_scenario(*json_in, scenario_name(flags));
  if (!scenario.ok()) return fail(scenario.status());
  if (const Status log = check_log(flags, scenario->world); !log.ok()) return fail(log);
  const Result<sim::Trace> trace = sim::load_trace(*scenario);
  if (!trace.ok()) return fail(trace.status());
  sim::WorldOptions& options = scenario->world;
  if (const Status fits = check_memory(flags, *trace, options); !fits.ok()) return fail(fits);
  Result<ResultFile> output = ResultFile::open(flags.output, "--output");
  if (!output.ok()) return fail(output.status().with_context("--output"));
  options.event_log = flags.event_log;
  options.stop = &stop_requested;
  std::signal(SIGINT, request_stop);
  const Result<sim::WorldReport> report = sim::run_world(*trace, options);
  std::signal(SIGINT, SIG_DFL);
  if (!report.ok()) return fail(report.status());
  nlohmann::ordered_json json = sim::report_json(*trace, options, *report);
  sim::add_scenario(json, *scenario);
  Status compared;  // what was simulated is written all the same
  if (!flags.from_log.empty() && !report->stopped) {
    const Result<sim::LogPasses> passes =
        sim::passes_of_log(flags.from_log, sim::PassModel(options.model, options.machine));
    if (passes.ok())
      sim::add_log_passes(json, *passes);
    else
      compared = passes.status();
  }
  fmt::print("{}", printable(sim::report_text(json), LineEnds::kKeep));
  if (const Status written = output->write(sim::file_text(json)); !written.ok()) return fail(written);
  if (!compared.ok()) return fail(compared);
  if (report->stopped) fmt::print(stderr, "loci sim: interrupted; this is what was done until then\n");
  return report->stopped ? 130 : 0;
}

// --advise itself.
CLI::Option* add_advice_options(CLI::App& command, SimFlags& flags) {
  CLI::Option* const advise =
      command.add_flag("--advise", flags.advice.wanted,
                       "find the cheapest host memory and disk that meet --ttft, in at most five minutes");
  command.add_option("--ttft", flags.advice.ttft, "the target: 90 % of first tokens within two seconds")
      ->type_name("2s@p90")
      ->needs(advise);
  command
      .add_option("--prices", flags.advice.prices,
                  "what memory costs, and its sizes on offer (docs/simulation.md)")
      ->type_name("FILE")
      ->needs(advise);
  return advise;
}

// What is written where, and what a run may take.
void add_result_options(CLI::App& command, SimFlags& flags, CLI::Option* advise) {
  // With it nothing is run.
  CLI::Option* const exports =
      command
          .add_option(
              "--export", flags.export_to,
              "write the requests as a trace (docs/traces.md) instead of running them: hashes under a "
              "fresh key, no tokens")
          ->type_name("FILE")
          ->excludes(advise);
  command.add_option("--output", flags.output, "write the report to this file, as JSON")->excludes(exports);
  command
      .add_option("--event-log", flags.event_log, "write the core's events to this file, for `loci replay`")
      ->excludes(advise)
      ->excludes(exports);
  command
      .add_option("--memory-limit", flags.memory_limit,
                  "refuse a run that would need more of this machine's memory than this size, such as 8GiB")
      ->excludes(exports);
}

}  // namespace

void add_sim_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("sim", "run the server's decisions on a machine that is described");
  command->group(kMeasureGroup);
  auto flags = std::make_shared<SimFlags>();
  command->add_option("SCENARIO", flags->scenario,
                      "a JSON file (docs/simulation.md); every field can also be --set");
  command->add_option(
      "--set", flags->sets,
      "FIELD.FIELD=VALUE: set a field of the scenario, over what the file says; may be given several times");
  command->add_option("--model", flags->model, "as --set model=NAME")->type_name("NAME");
  command
      ->add_option("--machine", flags->machine,
                   "as --set machine=NAME, or a file that `loci profile` wrote, or one with a machine's "
                   "peaks (docs/simulation.md)")
      ->type_name("NAME|FILE");
  auto* trace =
      command->add_option("--trace", flags->trace, "as --set trace.file=FILE: requests instead of a workload")
          ->type_name("FILE");
  command
      ->add_option("--from-log", flags->from_log,
                   "the requests of a server's event log (`loci serve --event-log`) instead of a workload")
      ->type_name("FILE")
      ->excludes(trace);
  CLI::Option* const advise = add_advice_options(*command, *flags);
  add_result_options(*command, *flags, advise);
  command->add_flag("--presets", flags->list,
                    "print the models, machines and workloads that are known, as JSON");
  command->footer(
      "Example:\n  loci sim --set model=llama2-13b --set machine=a100-80g --set memory.device_gb=40 "
      "--set memory.host_gb=128 --set workload.kind=sharegpt-pensieve\n"
      "  loci sim --from-log events.bin --export requests.jsonl\n"
      "  loci sim --advise --model llama2-13b --machine a100-80g --trace requests.jsonl --ttft 2s@p90 "
      "--prices prices.json");
  command->callback([flags, &exit_code] { exit_code = run_sim(*flags); });
}

}  // namespace loci
