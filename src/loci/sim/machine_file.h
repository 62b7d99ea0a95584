// SPDX-License-Identifier: Apache-2.0
// A machine that is not among those that are known, described in a file by the same figures
// (docs/simulation.md).
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/sim/hardware.h"

namespace loci::sim {

// Its name stays empty. Errors: kNotFound; kInvalidArgument "FILE: FIELD: expected ..., found ...".
Result<MachinePreset> read_machine_file(const std::string& path);

}  // namespace loci::sim
