// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON object. Errors name the field that is wrong, missing or unknown. The first error
// is kept; fields that are read after it keep their defaults.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"

namespace loci::sim {

// "a, b, c"
template <class Names>
std::string joined(const Names& names) {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

// Thread-compatible. `file` and `path` say where the object stands: "FILE: PATH.FIELD: expected ...".
class Fields {
 public:
  Fields(const nlohmann::json& json, std::string file, std::string path, Status& status);

  bool has(const char* name);
  // These leave `value` as it is if the field is absent.
  void read(const char* name, double& value, double least, double most);
  void read(const char* name, std::uint32_t& value, std::uint64_t least, std::uint64_t most);
  void read(const char* name, std::uint64_t& value, std::uint64_t least, std::uint64_t most);
  void read(const char* name, bool& value);
  void read(const char* name, std::string& value);
  // As read(), of a field that must be there.
  template <class Value>
  void require(const char* name, Value& value, auto least, auto most) {
    if (!has(name)) return wrong(name, "this field", "nothing");
    read(name, value, least, most);
  }
  // One of `names`.
  void read(const char* name, std::string& value, std::span<const std::string_view> names);
  void read(const char* name, std::string& value, std::initializer_list<std::string_view> names) {
    read(name, value, std::span<const std::string_view>(names.begin(), names.size()));
  }
  // The object of that name; an empty one if it is absent.
  Fields object(const char* name);
  const nlohmann::json& raw(const char* name);
  // Reports fields that were never read, unless there was an error before. Call it last.
  void finish();

  void wrong(std::string_view name, std::string_view expected, std::string_view found);

 private:
  const nlohmann::json* find(const char* name);
  void read_whole(const char* name, std::uint64_t& value, std::uint64_t least, std::uint64_t most);
  const nlohmann::json& json_;
  std::string file_;
  std::string path_;
  Status& status_;
  std::vector<std::string> asked_;
};

}  // namespace loci::sim
