// SPDX-License-Identifier: Apache-2.0
// The rules of pass.h that every pass keeps, whatever processor computes it.
#pragma once

#include <cstdint>
#include <span>

#include "loci/compute/backend.h"

namespace loci {

// Aborts where `pass` breaks one. `layers`: of the model; `slots`: of each group's pool.
void check_pass(const Pass& pass, std::uint32_t layers, std::span<const LayerGroup> groups,
                std::span<const std::uint32_t> slots);

}  // namespace loci
