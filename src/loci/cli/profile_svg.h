// SPDX-License-Identifier: Apache-2.0
// A profile as a picture, for `loci profile --svg`: two panels with logarithmic axes.
//
//   left    how long a block of 32 tokens takes to compute, over the number of tokens before it, and to load
//           from each tier. Where the lines cross, loading begins to be faster.
//   right   the speed of each link over the size of a transfer: small ones are slow, because of the latency.
#pragma once

#include <cstdint>
#include <string>

#include "loci/server/profile/profile_file.h"

namespace loci {

// An SVG document. `block_bytes`: of a block's state. The disk is left out where it was not measured.
std::string profile_svg(const CostProfile& profile, std::uint64_t block_bytes);

}  // namespace loci
