// SPDX-License-Identifier: Apache-2.0
// Why a token's state had to be computed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace loci {

enum class MissReason : std::uint8_t {
  kNeverSeen,  // as far as is remembered
  kEvicted,
  kExpired,
  kDamaged,  // or the disk failed
  kTooSlow,  // computing it is faster than bringing it back, or it did not come in time
};
inline constexpr std::size_t kMissReasons = 5;

constexpr std::string_view miss_reason_name(MissReason reason) {
  constexpr std::string_view kNames[kMissReasons] = {"never_seen", "evicted", "expired", "damaged",
                                                     "too_slow"};
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace loci
