// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/request/ordered_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/serve/request/json_parse.h"

namespace loci {
namespace {

// Members of the largest object.
std::size_t members_max(const nlohmann::json& value) {
  std::size_t most = value.is_object() ? value.size() : 0;
  if (value.is_structured()) {
    for (const nlohmann::json& one : value) most = std::max(most, members_max(one));
  }
  return most;
}

}  // namespace

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text) {
  LOCI_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(text, {.values_max = kOrderedValuesMax}));
  if (const std::size_t members = members_max(value); members > kOrderedMembersMax) {
    return invalid_argument(
        fmt::format("an object has more than {} members ({})", kOrderedMembersMax, members));
  }
  nlohmann::ordered_json ordered = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (ordered.is_discarded()) return invalid_argument("is no JSON");
  return ordered;
}

}  // namespace loci
