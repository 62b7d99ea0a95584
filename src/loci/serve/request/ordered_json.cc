#include "loci/serve/request/ordered_json.h"

#include <fmt/format.h>

#include <string>

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

// Where a string that begins at `at` ends: behind its closing quote.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

// Where the value that begins at `at` ends: before the ',' or '}' of what it stands in.
std::size_t value_end(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return at;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
  }
  return text.size();
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

Result<nlohmann::ordered_json> ordered_member(std::string_view body, std::string_view name) {
  std::string_view found;
  std::size_t at = body.find('{');
  while (at < body.size()) {
    const std::size_t key = body.find('"', at + 1);
    if (key == std::string_view::npos) break;
    const std::size_t key_end = string_end(body, key);
    const std::size_t colon = body.find(':', key_end);
    if (colon == std::string_view::npos) break;
    const nlohmann::json spelled = nlohmann::json::parse(body.substr(key, key_end - key), nullptr, false);
    at = value_end(body, colon + 1);
    if (spelled == name) found = body.substr(colon + 1, at - colon - 1);
  }
  if (found.empty()) return nlohmann::ordered_json();
  return parse_ordered_json(found);
}

}  // namespace loci
