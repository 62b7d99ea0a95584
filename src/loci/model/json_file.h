// SPDX-License-Identifier: Apache-2.0
// JSON of model directories (config.json, headers of safetensors): parsed within bounds, refused if a key
// appears twice, and read by fields, which errors name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// Errors: kInvalidArgument with the byte at fault: bad syntax, text that is not UTF-8, nesting deeper than
// 64, a key twice in one object.
Result<nlohmann::json> parse_model_json(std::string_view text);

// "an object", "a string": for messages.
std::string_view describe_json(const nlohmann::json& value);

// Members of one object; `where` ("config.json") is put before the field in each error: "config.json:
// hidden_size". Thread-compatible; the object must outlive it. A member that is null counts as absent.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  const nlohmann::json* find(std::string_view name) const;  // nullptr: absent or null
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Errors: kInvalidArgument naming the field, what was expected and what was found.
  Result<std::uint64_t> get_uint(std::string_view name) const;
  Result<double> get_number(std::string_view name) const;
  Result<bool> get_bool(std::string_view name) const;
  Result<std::string> get_string(std::string_view name) const;
  Result<std::uint64_t> get_uint_or(std::string_view name, std::uint64_t otherwise) const;
  Result<bool> get_bool_or(std::string_view name, bool otherwise) const;
  Result<std::string> get_string_or(std::string_view name, std::string otherwise) const;

  // The error for member `name`: "expected ..., found ...".
  Status unexpected(std::string_view name, std::string_view expected) const;
  std::string field(std::string_view name) const { return where_ + ": " + std::string(name); }

 private:
  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace loci
