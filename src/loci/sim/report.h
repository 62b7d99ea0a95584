// SPDX-License-Identifier: Apache-2.0
// A run's results: as a JSON object (docs/simulation.md describes its fields) and as lines for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "loci/sim/log_passes.h"
#include "loci/sim/scenario.h"
#include "loci/sim/trace.h"
#include "loci/sim/world.h"

namespace loci::sim {

nlohmann::ordered_json report_json(const Trace& trace, const WorldOptions& options,
                                   const WorldReport& report);
// Adds the scenario's `name`, if it has one, and the sizes of each server's memory for state (`memory`),
// which may be presets that nobody chose.
void add_scenario(nlohmann::ordered_json& report, const Scenario& scenario);
// Adds what the passes of the log that the requests come from took (`log`).
void add_log_passes(nlohmann::ordered_json& report, const LogPasses& passes);
// As a file has it; of names that are not UTF-8 the other bytes are replaced.
std::string file_text(const nlohmann::ordered_json& report);
std::string report_text(const nlohmann::ordered_json& report);

}  // namespace loci::sim
