// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/sim/json_text.h"

namespace loci::sim {
namespace {

const nlohmann::json& empty_object() {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  return kEmpty;
}

}  // namespace

Fields::Fields(const nlohmann::json& json, std::string file, std::string path, Status& status)
    : json_(json), file_(std::move(file)), path_(std::move(path)), status_(status) {
  if (!json.is_object()) wrong("", "an object", json.type_name());
}

void Fields::wrong(std::string_view name, std::string_view expected, std::string_view found) {
  if (!status_.ok()) return;
  std::string field = path_;
  if (!field.empty() && !name.empty()) field += ".";
  field += name;
  status_ = invalid_argument(fmt::format("{}: {}: expected {}, found {}", file_,
                                         field.empty() ? "the file" : field, expected, found),
                             field);
}

const nlohmann::json* Fields::find(const char* name) {
  if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) asked_.emplace_back(name);
  if (!json_.is_object()) return nullptr;
  const auto at = json_.find(name);
  return at == json_.end() ? nullptr : &*at;
}

bool Fields::has(const char* name) { return find(name) != nullptr; }

const nlohmann::json& Fields::raw(const char* name) {
  const nlohmann::json* at = find(name);
  return at == nullptr ? empty_object() : *at;
}

void Fields::read(const char* name, double& value, double least, double most) {
  const nlohmann::json* at = find(name);
  if (at == nullptr) return;
  const double found = at->is_number() ? at->get<double>() : std::nan("");
  if (!std::isfinite(found) || found < least || found > most)
    return wrong(name, fmt::format("a number from {} to {}", least, most), shown(*at));
  value = found;
}

void Fields::read_whole(const char* name, std::uint64_t& value, std::uint64_t least, std::uint64_t most) {
  const nlohmann::json* at = find(name);
  if (at == nullptr) return;
  const std::uint64_t found = at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
  if (!at->is_number_unsigned() || found < least || found > most)
    return wrong(name, fmt::format("a whole number from {} to {}", least, most), shown(*at));
  value = found;
}

void Fields::read(const char* name, std::uint64_t& value, std::uint64_t least, std::uint64_t most) {
  read_whole(name, value, least, most);
}

void Fields::read(const char* name, std::uint32_t& value, std::uint64_t least, std::uint64_t most) {
  std::uint64_t wide = value;
  read_whole(name, wide, least, std::min<std::uint64_t>(most, UINT32_MAX));
  value = static_cast<std::uint32_t>(wide);
}

void Fields::read(const char* name, bool& value) {
  const nlohmann::json* at = find(name);
  if (at == nullptr) return;
  if (!at->is_boolean()) return wrong(name, "true or false", shown(*at));
  value = at->get<bool>();
}

void Fields::read(const char* name, std::string& value) {
  const nlohmann::json* at = find(name);
  if (at == nullptr) return;
  if (!at->is_string()) return wrong(name, "a text", shown(*at));
  value = at->get<std::string>();
}

void Fields::read(const char* name, std::string& value, std::span<const std::string_view> names) {
  std::string found = value;
  read(name, found);
  if (std::find(names.begin(), names.end(), found) == names.end())
    return wrong(name, fmt::format("one of {}", joined(names)), "'" + found + "'");
  value = found;
}

Fields Fields::object(const char* name) {
  const nlohmann::json& json = raw(name);
  return Fields(json, file_, path_.empty() ? name : path_ + "." + name, status_);
}

void Fields::finish() {
  if (!json_.is_object()) return;
  for (const auto& [name, value] : json_.items()) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end())
      return wrong(name, fmt::format("one of {}", joined(asked_)), "this field");
  }
}

}  // namespace loci::sim
