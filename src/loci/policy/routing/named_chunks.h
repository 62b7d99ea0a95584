// SPDX-License-Identifier: Apache-2.0
// Which chunks of a prompt's text have names: each of the first 64, then every eighth, which stands for
// itself and the seven before it. So a conversation of 512 KiB takes 312 places of what an instance publishes
// and of what a front remembers, not 2,048. A long prompt's error is seven chunks at most.
//
// A name's last two bits are free (kTierBits): there the feed (cluster/feed/feed_wire.h) and a front's table
// (held_prompts.h) have the tier and one.
#pragma once

#include <cstdint>

namespace loci {

inline constexpr std::uint64_t kTierBits = 3;

inline constexpr std::uint64_t kChunksAllNamed = 64, kChunksOfLaterName = 8;

// So many chunks end where the prompt's first `names` names do.
constexpr std::uint64_t chunks_of_names(std::uint64_t names) {
  return names <= kChunksAllNamed ? names : kChunksAllNamed + (names - kChunksAllNamed) * kChunksOfLaterName;
}

}  // namespace loci
