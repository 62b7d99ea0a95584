// SPDX-License-Identifier: Apache-2.0
// In how many rounds the layers of blocks come from a peer: the first layers of all blocks, then the next
// ones of all. So a pass computes with the first layers while later ones come. What it can do meanwhile grows
// with the rounds, and so does what both ends do for each; docs/decisions/peers.md has the figures.
#pragma once

#include <cstdint>

#include "loci/engine/core/plan.h"

namespace loci {

inline constexpr std::uint8_t kPeerRounds = 4;
static_assert(is_peer_rounds(kPeerRounds));
// A read of less is over too soon for that, and has one round.
inline constexpr std::uint64_t kPeerRoundsBytes = std::uint64_t{4} << 20;

constexpr std::uint8_t peer_rounds(std::uint64_t bytes, std::uint8_t most,
                                   std::uint64_t least_bytes = kPeerRoundsBytes) {
  return bytes < least_bytes ? std::uint8_t{1} : most;
}

}  // namespace loci
