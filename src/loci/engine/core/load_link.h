// SPDX-License-Identifier: Apache-2.0
// The links by which state comes to the device. Each has its own rate, correction and booked time
// (link_times.h): those of a tier, but for the shared tier, which may stand for two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "loci/memory/tier.h"

namespace loci {

// kShared: the shared tier's, whether it is a store or peers alone. kPeers: that of peers beside a store. A
// store over a thin line tells nothing about peers in the same rack, nor they about the store.
enum class LoadLink : std::uint8_t { kHost, kDisk, kPeers, kShared };
inline constexpr std::size_t kLoadLinks = 4;
inline constexpr std::array kEveryLoadLink = {LoadLink::kHost, LoadLink::kDisk, LoadLink::kPeers,
                                              LoadLink::kShared};

// Where a table has what is the tier's, or the link's.
constexpr std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }
constexpr std::size_t index_of(LoadLink link) { return static_cast<std::size_t>(link); }

// The link from a tier of this server's own, below the device.
constexpr LoadLink own_link(Tier tier) { return tier == Tier::kHost ? LoadLink::kHost : LoadLink::kDisk; }

// The tier that the link brings state from.
constexpr Tier tier_of(LoadLink link) {
  if (link == LoadLink::kHost) return Tier::kHost;
  return link == LoadLink::kDisk ? Tier::kDisk : Tier::kShared;
}

}  // namespace loci
