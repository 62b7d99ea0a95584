// SPDX-License-Identifier: Apache-2.0
// The input of a run, read from a JSON file (docs/simulation.md describes the fields): a model, a machine,
// the sizes of memory, the engine's options, and a workload or a trace.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/scenario_baseline.h"
#include "loci/sim/trace.h"
#include "loci/sim/trace_source.h"
#include "loci/sim/workload.h"
#include "loci/sim/world.h"

namespace loci::sim {

struct Scenario {
  std::string file;  // for messages
  std::string name;
  WorldOptions world;
  std::optional<ScenarioBaseline> baseline;  // `world` has its policies already
  WorkloadOptions workload;
  TraceSource trace;  // without a file: the workload
};

// Errors: kInvalidArgument "FILE: FIELD: expected ..., found ..."; for text that is not JSON, with the line.
Result<nlohmann::json> parse_scenario_text(const std::string& text, const std::string& file);
// Sets `path` ("engine.eviction") to `value`, which is parsed as JSON if it is JSON, else taken as text.
Status set_field(nlohmann::json& json, const std::string& path, const std::string& value);
Result<Scenario> parse_scenario(const nlohmann::json& json, const std::string& file);
// Like parse_scenario(), but only for the workload and the trace; of other fields only the names are checked.
Result<Scenario> parse_requests(const nlohmann::json& json, const std::string& file);
// The trace that the scenario names, or its workload. Errors: kInvalidArgument naming file and field; those
// of read_source().
Result<Trace> load_trace(const Scenario& scenario);
// Roughly how many bytes of this machine's memory the run needs: for the requests and what is recorded of
// them, the tokens of conversations, and the index's blocks.
std::uint64_t memory_estimate(const Trace& trace, const WorldOptions& options);

}  // namespace loci::sim
