// SPDX-License-Identifier: Apache-2.0
// The schema of a tool's arguments as a client gives it, in whichever API.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {

// The schema under `name`; null: there is none, or it is an error. Arguments have names, so it is that of an
// object: what a model writes otherwise is no call.
inline const Json* read_tool_parameters(FieldReader& reader, std::string_view name) {
  const Json* schema = reader.find(name);
  if (schema == nullptr) return nullptr;
  if (!schema->is_object()) {
    reader.expected(name, "a JSON schema (an object)", *schema);
    return nullptr;
  }
  const auto type = schema->find("type");
  if (type == schema->end() || type->is_null() || *type == "object") return schema;
  reader.expected(fmt::format("{}.type", name), "\"object\"", *type);
  return nullptr;
}

}  // namespace loci
