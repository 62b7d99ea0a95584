// SPDX-License-Identifier: Apache-2.0
// Checks whether a JSON value satisfies a schema. For tests: written plainly, with only the keywords that
// they use.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace loci {

class SchemaCheck {
 public:
  using OrderedJson = nlohmann::ordered_json;
  explicit SchemaCheck(const OrderedJson& root) : root_(root) {}

  bool valid(const OrderedJson& value) const { return valid(root_, value); }

 private:
  static std::size_t characters(const std::string& text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  }
  static bool has_type(const std::string& type, const OrderedJson& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
  }
  bool valid(const OrderedJson& schema, const OrderedJson& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("$ref"))
      return valid(root_.at(OrderedJson::json_pointer(schema["$ref"].get<std::string>().substr(1))), value);
    if (schema.contains("type")) {
      const OrderedJson& type = schema["type"];
      const bool one = type.is_string() ? has_type(type, value)
                                        : std::any_of(type.begin(), type.end(), [&](const OrderedJson& t) {
                                            return has_type(t, value);
                                          });
      if (!one) return false;
    }
    if (schema.contains("const") && schema["const"] != value) return false;
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      return false;
    if (schema.contains("anyOf") && std::none_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                                                 [&](const OrderedJson& s) { return valid(s, value); }))
      return false;
    if (value.is_object()) return valid_object(schema, value);
    if (value.is_array()) return valid_array(schema, value);
    if (value.is_string()) return valid_string(schema, value.get<std::string>());
    if (value.is_number()) {
      const double number = value.get<double>();
      if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return false;
      if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return false;
    }
    return true;
  }
  bool valid_object(const OrderedJson& schema, const OrderedJson& value) const {
    const OrderedJson none = OrderedJson::object();
    const OrderedJson& properties = schema.contains("properties") ? schema["properties"] : none;
    for (const auto& name : schema.value("required", OrderedJson::array()))
      if (!value.contains(name.get<std::string>())) return false;
    std::size_t last = 0;
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (!valid(properties[name], member)) return false;
        // Properties must be in the schema's order.
        std::size_t place = 0;
        for (const auto& [known, unused] : properties.items()) {
          if (known == name) break;
          ++place;
        }
        if (place < last) return false;
        last = place;
      } else if (schema.contains("additionalProperties") && !valid(schema["additionalProperties"], member)) {
        return false;
      }
    }
    return true;
  }
  bool valid_array(const OrderedJson& schema, const OrderedJson& value) const {
    if (schema.contains("minItems") && value.size() < schema["minItems"].get<std::size_t>()) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<std::size_t>()) return false;
    return !schema.contains("items") || std::all_of(value.begin(), value.end(), [&](const OrderedJson& item) {
      return valid(schema["items"], item);
    });
  }
  bool valid_string(const OrderedJson& schema, const std::string& text) const {
    if (schema.contains("minLength") && characters(text) < schema["minLength"].get<std::size_t>())
      return false;
    if (schema.contains("maxLength") && characters(text) > schema["maxLength"].get<std::size_t>())
      return false;
    return !schema.contains("pattern") ||
           std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
  }

  const OrderedJson& root_;
};

}  // namespace loci
