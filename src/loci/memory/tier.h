// SPDX-License-Identifier: Apache-2.0
// The places where state lies, the fastest first.
#pragma once

#include <cstdint>
#include <string_view>

namespace loci {

// kShared: a store that servers share, or peers. The index remembers which blocks they said that they have.
// They may have dropped them since, so only a load, which may fail, relies on it.
enum class Tier : std::uint8_t { kDevice, kHost, kDisk, kShared };
inline constexpr std::size_t kTiers = 4;

constexpr std::string_view tier_name(Tier tier) {
  constexpr std::string_view kNames[kTiers] = {"device", "host", "disk", "shared"};
  return kNames[static_cast<std::size_t>(tier)];
}

}  // namespace loci
