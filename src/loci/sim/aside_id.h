// SPDX-License-Identifier: Apache-2.0
// Ids of what instances do for a request beside the request itself (docs/decisions/roles.md): another one
// computes its prompt, and its own reads what has been computed so far. Both are requests of their cores, and
// so have ids of their own: that of the request, and which try it is.
#pragma once

#include <cstdint>

#include "loci/base/ids.h"

namespace loci::sim {

inline constexpr std::uint64_t kPrefillBit = std::uint64_t{1} << 63, kReadBit = std::uint64_t{1} << 62;
inline constexpr unsigned kTryShift = 40;  // requests of a trace are fewer than 2^40
inline constexpr std::uint64_t kTries = std::uint64_t{1} << (62 - kTryShift);

constexpr RequestId prefill_id(RequestId request, std::uint64_t which_try) {
  return RequestId(kPrefillBit | which_try % kTries << kTryShift | request.value);
}
// Of the one read that its instance has at a time.
constexpr RequestId read_id(RequestId prefill) {
  return RequestId((prefill.value & ~kPrefillBit) | kReadBit);
}
constexpr bool is_aside(RequestId id) { return (id.value & (kPrefillBit | kReadBit)) != 0; }
// The request itself, of any.
constexpr RequestId request_of(RequestId id) {
  return is_aside(id) ? RequestId(id.value & ((std::uint64_t{1} << kTryShift) - 1)) : id;
}

}  // namespace loci::sim
