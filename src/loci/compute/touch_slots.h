// SPDX-License-Identifier: Apache-2.0
// Memory that the system gives only when it is written to, for those who time what comes after.
#pragma once

#include <cstdint>

#include "loci/compute/backend.h"

namespace loci {

// Writes zeros to the group's first `count` slots, so that their memory is there, as it is in a server that
// has run for a while. Nobody uses the slots meanwhile.
void touch_slots(Backend& backend, std::uint32_t group, std::uint32_t count);

}  // namespace loci
