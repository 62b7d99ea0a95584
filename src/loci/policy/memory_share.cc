// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/memory_share.h"

#include <algorithm>

namespace loci {
namespace {

constexpr std::uint64_t kFreeOfState = 16;      // one part in so many of the machine's memory
constexpr std::uint64_t kGivenWhenStalled = 8;  // one part in so many of the state's
constexpr std::uint64_t kKeptWhenStalled = 8;   // one part in so many of the pool is not given for a stall
constexpr std::uint64_t kShortOfMemory = 8;     // less than one part in so many of the machine's is there
constexpr std::uint64_t kNoise = 64;  // less than one part in so many of the pool is not taken again
constexpr std::uint32_t kStalledPermille = 100;  // more of the time is a shortage
constexpr std::uint32_t kCalmLooks = 5;          // before memory is taken again

}  // namespace

std::uint64_t MemoryShare::look(const MemoryLook& now) {
  const std::uint64_t kept_free = now.total_bytes / kFreeOfState;
  const std::uint64_t all = now.used_bytes + now.available_bytes;
  std::uint64_t fits = all - std::min(all, kept_free);
  // What stalls others under a limit of their own does not end by what state gives.
  const bool is_heeded = now.stalls_are_own || now.available_bytes < now.total_bytes / kShortOfMemory;
  const bool stalled = is_heeded && now.stalled_permille >= kStalledPermille;
  if (stalled) {
    fits = std::min(
        fits, std::max(now.used_bytes - now.used_bytes / kGivenWhenStalled, pool_bytes_ / kKeptWhenStalled));
  }
  fits = std::min(fits, pool_bytes_);
  if (fits < room_) {
    room_ = fits;
    calm_looks_ = 0;
  } else if (stalled || ++calm_looks_ < kCalmLooks) {
    if (stalled) calm_looks_ = 0;
  } else if (fits == pool_bytes_ || fits - room_ > pool_bytes_ / kNoise) {
    room_ += (fits - room_ + 1) / 2;
  }
  return room_;
}

}  // namespace loci
