// SPDX-License-Identifier: Apache-2.0
// A profile as a picture, for `loci profile --svg`: two panels with logarithmic axes.
//
//   left    a block of 32 tokens: what computing it takes over the tokens before it, and loading it from each
//   tier.
//           Where the lines cross, bringing state back begins to be worth it.
//   right   what the links reach over the size of a transfer: latency counts for little ones.
#pragma once

#include <cstdint>
#include <string>

#include "loci/server/profile/profile_file.h"

namespace loci {

// An SVG document. `block_bytes`: of a block's state. The disk is left out where it was not measured.
std::string profile_svg(const CostProfile& profile, std::uint64_t block_bytes);

}  // namespace loci
