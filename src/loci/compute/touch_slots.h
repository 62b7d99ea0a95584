// SPDX-License-Identifier: Apache-2.0
// Touches memory that the system provides only when it is written to, before code that is timed.
#pragma once

#include <cstdint>

#include "loci/compute/backend.h"

namespace loci {

// Writes zeros to the group's first `count` slots, so that their memory is there, as it is in a server that
// has run for a while. Nobody else may use the slots meanwhile.
void touch_slots(Backend& backend, std::uint32_t group, std::uint32_t count);

}  // namespace loci
