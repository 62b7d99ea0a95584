// SPDX-License-Identifier: Apache-2.0
// What a run is of: a model on a machine with memory of some sizes, the engine's options, and a workload or a
// trace; read from a JSON file (docs/simulation.md describes the fields).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/trace.h"
#include "loci/sim/workload.h"
#include "loci/sim/world.h"

namespace loci::sim {

struct Scenario {
  std::string name;
  WorldOptions world;
  WorkloadOptions workload;
  std::string trace_file;  // empty: the workload
  std::string trace_format = "loci";
  std::uint32_t trace_limit = 0;  // the first requests; 0: all
  double time_scale = 1;          // of the trace's times
};

// Errors: kInvalidArgument "FILE: FIELD: expected ..., found ..."; for text that is no JSON with the line.
Result<nlohmann::json> parse_scenario_text(const std::string& text, const std::string& file);
// Sets `path` ("engine.eviction") to `value`: JSON where it is some, else a text.
Status set_field(nlohmann::json& json, const std::string& path, const std::string& value);
Result<Scenario> parse_scenario(const nlohmann::json& json, const std::string& file);
// The same of the workload and the trace alone: of other fields only the names are looked at.
Result<Scenario> parse_requests(const nlohmann::json& json, const std::string& file);
// The trace that the scenario names, or its workload.
Result<Trace> load_trace(const Scenario& scenario);
// What the run needs of this machine's memory, roughly: tokens, records, the index's blocks.
std::uint64_t memory_estimate(const Trace& trace, const WorldOptions& options);

}  // namespace loci::sim
