// SPDX-License-Identifier: Apache-2.0
// The places where state lies, the fastest first.
#pragma once

#include <cstdint>
#include <string_view>

namespace loci {

enum class Tier : std::uint8_t { kDevice, kHost, kDisk };
inline constexpr std::size_t kTiers = 3;

constexpr std::string_view tier_name(Tier tier) {
  constexpr std::string_view kNames[kTiers] = {"device", "host", "disk"};
  return kNames[static_cast<std::size_t>(tier)];
}

}  // namespace loci
