// SPDX-License-Identifier: Apache-2.0
// Checks the rules of pass.h that every pass must keep, on any processor.
#pragma once

#include <cstdint>
#include <span>

#include "loci/compute/backend.h"

namespace loci {

// Aborts if `pass` breaks a rule. `layers`: number of layers of the model; `slots`: number of slots in each
// group's pool.
void check_pass(const Pass& pass, std::uint32_t layers, std::span<const LayerGroup> groups,
                std::span<const std::uint32_t> slots);

}  // namespace loci
