// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/json_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownItems = 8, kShownBytes = 40;

bool is_short_list(const Json& json) {
  return json.is_array() && json.size() <= kShownItems &&
         std::ranges::none_of(json, [](const Json& item) { return item.is_structured(); });
}

}  // namespace

JsonRead<Json> read_json_file(std::string_view text) { return read_json<Json>(text, kJsonFileLimits); }

std::string levels_expected() {
  return fmt::format("at most {} levels of arrays and objects", kJsonLevelsMax);
}

std::string shown(const Json& json) {
  if (json.is_structured() && !is_short_list(json)) return json.type_name();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kShownBytes);
}

}  // namespace loci::sim
