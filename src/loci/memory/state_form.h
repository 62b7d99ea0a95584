// SPDX-License-Identifier: Apache-2.0
// What a copy of a block's state holds. (The numbers stand in the disk's records.)
#pragma once

#include <cstdint>
#include <string_view>

namespace loci {

enum class StateForm : std::uint8_t {
  kKeysAndValues = 0,
  kHidden = 1,  // what the products of K and V consume, which are projected (HCache §3.2)
};

constexpr std::string_view state_form_name(StateForm form) {
  return form == StateForm::kHidden ? "hidden" : "kv";
}

}  // namespace loci
