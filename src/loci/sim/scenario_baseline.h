// SPDX-License-Identifier: Apache-2.0
// A paper's set of policies in a scenario (`engine.baseline`). It decides what a server's set does
// (server/baseline.h): the policies, the tiers that the paper's system lacks, that histories are truncated,
// and that there is no time of a pass, no hidden state and nothing from peers. A field that says something
// else is refused by its name.
#pragma once

#include <optional>
#include <string>

#include "loci/policy/baselines.h"
#include "loci/sim/fields.h"
#include "loci/sim/world.h"

namespace loci::sim {

struct ScenarioBaseline {
  std::string name;
  Baseline set;
};

// Reads the baseline and the policies of `engine`, each by its own name. nullopt: there is no baseline, or
// something is wrong.
std::optional<ScenarioBaseline> read_policies(Fields& engine, PolicySet& policies);

// Refuses what else of the scenario contradicts its baseline; `world` is what was read of it.
void refuse_contradictions(const ScenarioBaseline& baseline, const WorldOptions& world, Fields& scenario);

}  // namespace loci::sim
