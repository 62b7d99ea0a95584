// SPDX-License-Identifier: Apache-2.0
// From a model's name to an engine that runs: the model, the backend, its pools, the tiers below, the costs.
#pragma once

#include "loci/base/status.h"
#include "loci/server/server.h"
#include "loci/server/server_parts.h"
#include "loci/server/server_report.h"

namespace loci {

// Fills in these parts: model, backend, engine, disk_keeper, memory_keeper and served. Blocks while weights
// are read and packed. Errors name the option at fault, or what is wrong with the model.
Result<LoadedEngine> load_engine(ServerParts& parts, const FindModel& find_model);

}  // namespace loci
