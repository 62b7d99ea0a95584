// SPDX-License-Identifier: Apache-2.0
// JSON whose members' order matters (tools and schemas are shown to the model as the client wrote them).
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

inline constexpr std::size_t kOrderedValuesMax = 65'536;  // of one text
inline constexpr std::size_t kOrderedMembersMax = 1'024;  // of one object: finding a member is linear

// Errors: kInvalidArgument, as parse_json(), and where a bound above is passed.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text);

}  // namespace loci
