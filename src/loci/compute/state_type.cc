// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/state_type.h"

#include <fmt/format.h>

namespace loci {

std::string_view state_type_name(StateType type) {
  switch (type) {
    case StateType::kF16: return "f16";
    case StateType::kBF16: return "bf16";
    case StateType::kQ8: return "q8";
  }
  return "unknown";
}

Result<StateType> parse_state_type(std::string_view name) {
  for (const StateType type : kStateTypes) {
    if (state_type_name(type) == name) return type;
  }
  return invalid_argument(fmt::format("expected f16, bf16 or q8, found \"{}\"", name));
}

}  // namespace loci
