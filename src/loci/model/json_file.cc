// SPDX-License-Identifier: Apache-2.0
#include "loci/model/json_file.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

namespace loci {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

// nlohmann's messages open with "[json.exception.parse_error.101] " and may quote what was read.
std::string readable(std::string_view what) {
  if (const auto end = what.find("] "); what.starts_with("[json.") && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  std::string out;
  for (const char letter : what.substr(0, 200)) {
    out += letter < ' ' || letter == 0x7f ? '?' : letter;
  }
  return out;
}

// Looks on while the parser works; the first fault stays.
class Watcher {
 public:
  bool see(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth > kMaxDepth && fault_.empty()) fault_ = fmt::format("it is nested deeper than {}", kMaxDepth);
    if (!fault_.empty()) return false;  // nothing more is kept
    if (event == Event::object_start) {
      open_.emplace_back();
    } else if (event == Event::object_end) {
      open_.pop_back();
    } else if (event == Event::key && !open_.back().insert(parsed.get_ref<const std::string&>()).second) {
      fault_ = fmt::format("the key \"{}\" appears twice", readable(parsed.get_ref<const std::string&>()));
    }
    return true;
  }
  const std::string& fault() const { return fault_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string fault_;
};

}  // namespace

Result<json> parse_model_json(std::string_view text) {
  Watcher watcher;
  try {
    json value = json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
      return watcher.see(depth, event, parsed);
    });
    if (!watcher.fault().empty()) return invalid_argument("expected valid JSON: " + watcher.fault());
    return value;
  } catch (const std::exception& error) {
    if (!watcher.fault().empty()) return invalid_argument("expected valid JSON: " + watcher.fault());
    return invalid_argument("expected valid JSON: " + readable(error.what()));
  }
}

std::string_view describe_json(const json& value) {
  switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::object: return "an object";
    case json::value_t::array: return "an array";
    case json::value_t::string: return "a string";
    case json::value_t::boolean: return "a bool";
    case json::value_t::number_integer: return "a negative integer";
    case json::value_t::number_unsigned: return "an unsigned integer";
    case json::value_t::number_float: return "a fraction";
    default: return "something else";
  }
}

const json* JsonFields::find(std::string_view name) const {
  if (!object_->is_object()) return nullptr;
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

Status JsonFields::unexpected(std::string_view name, std::string_view expected) const {
  const json* value = find(name);
  std::string found = "nothing";
  if (value != nullptr) {
    const bool is_short = value->is_primitive() && !value->is_string();
    found = is_short ? value->dump() : std::string(describe_json(*value));
    if (value->is_string() && value->get_ref<const std::string&>().size() <= 64)
      found = fmt::format("\"{}\"", readable(value->get_ref<const std::string&>()));
  }
  return invalid_argument(fmt::format("expected {}, found {}", expected, found), field(name));
}

Result<std::uint64_t> JsonFields::get_uint(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr || !value->is_number_unsigned()) return unexpected(name, "an unsigned integer");
  return value->get<std::uint64_t>();
}

Result<double> JsonFields::get_number(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr || !value->is_number()) return unexpected(name, "a number");
  return value->get<double>();
}

Result<bool> JsonFields::get_bool(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr || !value->is_boolean()) return unexpected(name, "a bool");
  return value->get<bool>();
}

Result<std::string> JsonFields::get_string(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr || !value->is_string()) return unexpected(name, "a string");
  return value->get<std::string>();
}

Result<std::uint64_t> JsonFields::get_uint_or(std::string_view name, std::uint64_t otherwise) const {
  return has(name) ? get_uint(name) : Result<std::uint64_t>(otherwise);
}
Result<bool> JsonFields::get_bool_or(std::string_view name, bool otherwise) const {
  return has(name) ? get_bool(name) : Result<bool>(otherwise);
}
Result<std::string> JsonFields::get_string_or(std::string_view name, std::string otherwise) const {
  return has(name) ? get_string(name) : Result<std::string>(std::move(otherwise));
}

}  // namespace loci
