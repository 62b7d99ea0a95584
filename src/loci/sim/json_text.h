// SPDX-License-Identifier: Apache-2.0
// JSON of files that anybody may have written (base/json_reader.h), and what errors say of it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "loci/base/json_reader.h"

namespace loci::sim {

// Of arrays and objects inside one another.
inline constexpr std::size_t kJsonLevelsMax = kJsonFileLimits.depth_max;

JsonRead<nlohmann::json> read_json_file(std::string_view text);

// What an error says was expected and found where a text is too deep.
std::string levels_expected();
inline constexpr std::string_view kLevelsFound = "more";

// A value as an error shows it: its first 40 bytes; of an object or a long array only its type.
std::string shown(const nlohmann::json& json);

}  // namespace loci::sim
