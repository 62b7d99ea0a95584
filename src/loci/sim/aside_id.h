// SPDX-License-Identifier: Apache-2.0
// Ids of asides. If a prefill member computes a request's prompt (docs/decisions/roles.md), two more requests
// run for it: one at the prefill member, which computes the prompt, and one at the decode member, which reads
// what has been computed so far. Each has an id made of the request's own and of the number of the try.
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
// The decode member has one read at a time.
constexpr RequestId read_id(RequestId prefill) {
  return RequestId((prefill.value & ~kPrefillBit) | kReadBit);
}
constexpr bool is_aside(RequestId id) { return (id.value & (kPrefillBit | kReadBit)) != 0; }
// The request that an aside runs for; of a request that is no aside, itself.
constexpr RequestId request_of(RequestId id) {
  return is_aside(id) ? RequestId(id.value & ((std::uint64_t{1} << kTryShift) - 1)) : id;
}

}  // namespace loci::sim
