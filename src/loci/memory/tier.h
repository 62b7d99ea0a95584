// SPDX-License-Identifier: Apache-2.0
// The places where state lies, the fastest first.
#pragma once

#include <cstdint>
#include <string_view>

namespace loci {

// kShared: a store that servers share. What the index has there is what the store said that it has, for which
// no tier accounts, and on which nothing but a load may count.
enum class Tier : std::uint8_t { kDevice, kHost, kDisk, kShared };
inline constexpr std::size_t kTiers = 4;

constexpr std::string_view tier_name(Tier tier) {
  constexpr std::string_view kNames[kTiers] = {"device", "host", "disk", "shared"};
  return kNames[static_cast<std::size_t>(tier)];
}

}  // namespace loci
