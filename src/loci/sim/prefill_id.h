// SPDX-License-Identifier: Apache-2.0
// A request's prompt that another instance computes before the reply is written (docs/decisions/roles.md) is
// a request of its own there, and so has an id of its own: that of the request, and which try it is.
#pragma once

#include <cstdint>

#include "loci/base/ids.h"

namespace loci::sim {

inline constexpr std::uint64_t kPrefillBit = std::uint64_t{1} << 63;
inline constexpr unsigned kTryShift = 40;  // requests of a trace are fewer than 2^40

constexpr RequestId prefill_id(RequestId request, std::uint64_t which_try) {
  return RequestId(kPrefillBit | which_try << kTryShift | request.value);
}
constexpr bool is_prefill(RequestId id) { return (id.value & kPrefillBit) != 0; }
// The request itself, of either.
constexpr RequestId request_of(RequestId id) {
  return is_prefill(id) ? RequestId(id.value & ((std::uint64_t{1} << kTryShift) - 1)) : id;
}

}  // namespace loci::sim
