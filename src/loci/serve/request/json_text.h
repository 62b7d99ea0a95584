// SPDX-License-Identifier: Apache-2.0
// A member of a JSON text as it is written there: a parsed object has lost the order of its members, and to
// a schema or a tool's parameters the order matters.
#pragma once

#include <optional>
#include <string_view>

namespace loci {

// The text of the value at `path` ("response_format.json_schema.schema": names of members from the root;
// none may hold a dot), a part of `json`. Where a name appears twice the last one counts. None where there is
// no such member. `json` must have been parsed before (parse_json()), which has checked it; O(its size).
std::optional<std::string_view> json_member_text(std::string_view json, std::string_view path);

}  // namespace loci
