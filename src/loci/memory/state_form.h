// SPDX-License-Identifier: Apache-2.0
// What a copy of a block's state holds. (The numbers stand in the disk's records.)
#pragma once

#include <cstdint>

namespace loci {

enum class StateForm : std::uint8_t {
  kKeysAndValues = 0,
  kHidden = 1,  // what the products of K and V consume, which are projected (HCache §3.2)
};

// Slots are of pools: one for each layer group, and behind those, where hidden states are kept, one more for
// each group's hidden states. The disk store's groups are these pools. Both forms' pools of a group share one
// room: each has as many slots as the whole room is enough for, and what one uses the other has not.
constexpr std::uint32_t pool_of(std::uint32_t group, StateForm form, std::uint32_t group_count) {
  return form == StateForm::kHidden ? group_count + group : group;
}

// How many slots a pool may use that could use `alone` of them if the other form used none, while that one
// uses `used` of the `other_alone` that it could: floor(alone · (1 - used / other_alone)).
constexpr std::uint32_t slots_beside(std::uint32_t alone, std::uint32_t used, std::uint32_t other_alone) {
  if (used == 0) return alone;
  if (used >= other_alone) return 0;
  const std::uint64_t taken = (std::uint64_t{alone} * used + other_alone - 1) / other_alone;
  return alone - static_cast<std::uint32_t>(taken);
}

}  // namespace loci
