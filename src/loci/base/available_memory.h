// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/status.h"

namespace loci {

struct AvailableMemory {
  std::uint64_t bytes = 0;        // without swapping, within the limits of the control groups
  std::uint64_t total_bytes = 0;  // of the machine, or of its control group's limit
  std::string limited_by;         // "the machine", or the control group that leaves less
};

// Reads /proc/meminfo and the control groups below the folder `root` ("" is this machine; tests use another).
// Errors: kUnavailable if the machine does not report it.
Result<AvailableMemory> read_available_memory(const std::string& root);

}  // namespace loci
