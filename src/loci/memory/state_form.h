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
// each group's hidden states. The disk store's groups are these pools.
constexpr std::uint32_t pool_of(std::uint32_t group, StateForm form, std::uint32_t group_count) {
  return form == StateForm::kHidden ? group_count + group : group;
}

}  // namespace loci
