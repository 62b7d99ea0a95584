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

// The member `name` of the object that `body` is (parse_json() has taken it): as it stands there, members
// in their order. null: there is none. Where a key appears twice the last one counts. Reads the body once.
Result<nlohmann::ordered_json> ordered_member(std::string_view body, std::string_view name);

}  // namespace loci
