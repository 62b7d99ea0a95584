// SPDX-License-Identifier: Apache-2.0
// JSON of files that anybody may have written. The library reads it without recursion but prints it with one
// call for each level, so text that is nested without a limit would overflow the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace loci::sim {

inline constexpr int kJsonLevelsMax = 64;  // of arrays and objects inside one another

struct JsonText {
  nlohmann::json value;      // discarded: the text is not JSON
  bool is_too_deep = false;  // then `value` lacks what is inside the deepest level
};
JsonText read_json(std::string_view text);

// What an error says was expected and found where a text is too deep.
std::string levels_expected();
inline constexpr std::string_view kLevelsFound = "more";

// A value as an error shows it: its first 40 bytes; of an object or a long array only its type.
std::string shown(const nlohmann::json& json);

}  // namespace loci::sim
