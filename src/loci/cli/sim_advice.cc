// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/sim_advice.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "loci/base/clock.h"
#include "loci/cli/result_file.h"
#include "loci/sim/advice.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/report.h"

namespace loci {
namespace {

constexpr std::uint32_t kAnyBlocks = 1u << 24;  // as many as a tier may have: what a trace fills counts

Result<sim::Prices> read_prices(const std::string& path, double state_gb, const sim::Scenario& scenario) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, sim::read_text(path));
  LOCI_ASSIGN_OR_RETURN(const nlohmann::json json, sim::parse_scenario_text(text, path));
  LOCI_ASSIGN_OR_RETURN(sim::Prices prices, sim::parse_prices(json, path, state_gb));
  LOCI_RETURN_IF_ERROR(sim::check_offer(prices, path, scenario));
  return prices;
}

void print_progress(const sim::SizedRun& run, std::size_t open, const sim::SizedRun* done, Nanos elapsed) {
  if (done == nullptr) {
    const std::string left = open > 0 ? fmt::format(", {} pairs open", open) : std::string();
    const std::string with = run.all_on_device
                                 ? "all state in the device's memory"
                                 : fmt::format("host {:g} GB, disk {:g} GB", run.host_gb, run.disk_gb);
    fmt::print(stderr, "{:.0f} s{}: {} ... ", static_cast<double>(elapsed) / kNanosPerSecond, left, with);
  } else {
    const std::string time = done->ttft == kNever
                                 ? "no first token"
                                 : fmt::format("{:.3f} s", static_cast<double>(done->ttft) / kNanosPerSecond);
    fmt::print(stderr, "{}, {}\n", time, done->meets ? "meets the target" : "misses it");
  }
  std::fflush(stderr);
}

}  // namespace

Result<bool> run_advice(AdviceCommand command, const std::atomic<bool>& stop) {
  const AdviceFlags& flags = command.flags;
  if (flags.ttft.empty() || flags.prices.empty())
    return invalid_argument("--advise: expected --ttft and --prices with it, found only one of them or none",
                            "--advise");
  const SystemClock clock;
  const Nanos began = clock.now();
  sim::AdviceInput input{.scenario = std::move(command.scenario), .file = command.file};
  const Result<sim::TtftTarget> target = sim::parse_ttft_target(flags.ttft);
  if (!target.ok()) return target.status().with_context("--ttft");
  input.target = *target;
  LOCI_ASSIGN_OR_RETURN(const sim::Scenario scenario, sim::parse_open_scenario(input.scenario, input.file));
  // Wrong prices are told of before a long trace is read.
  LOCI_RETURN_IF_ERROR(read_prices(flags.prices, 0, scenario).status());
  LOCI_ASSIGN_OR_RETURN(input.trace, command.load(scenario));
  const double state_gb = sim::state_gb(input.trace, scenario.world.model);
  LOCI_ASSIGN_OR_RETURN(input.prices, read_prices(flags.prices, state_gb, scenario));
  sim::WorldOptions largest = scenario.world;
  largest.core.groups.front().disk_blocks = kAnyBlocks;
  LOCI_RETURN_IF_ERROR(command.check_memory(input.trace, largest));
  Result<ResultFile> output = ResultFile::open(command.output, "--output");
  if (!output.ok()) return output.status().with_context("--output");
  const auto listener = [&](const sim::SizedRun& run, std::size_t open, const sim::SizedRun* done) {
    print_progress(run, open, done, clock.now() - began);
  };
  LOCI_ASSIGN_OR_RETURN(const sim::Advice advice, sim::advise(input, stop, listener));
  if (stop) fmt::print(stderr, "ended\n");
  for (const std::string& note : input.trace.notes) fmt::print("workload: {}\n", note);
  fmt::print("{}", sim::advice_text(advice, input.prices, input.target));
  LOCI_RETURN_IF_ERROR(output->write(sim::file_text(sim::advice_json(advice, input.prices, input.target))));
  return advice.cheapest.has_value();
}

}  // namespace loci
