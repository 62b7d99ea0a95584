// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/response_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

// A line that begins like a rule of GBNF, "name ::=".
bool looks_like_gbnf(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t defines = line.find("::=");
    if (defines != line.npos && line.find_first_of("\"'/#") > defines) return true;
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return false;
}

// A second constraint is an error, unless it is the same again: clients that serve several versions of vLLM
// say one grammar in the fields of each.
void set(FieldReader& reader, std::string_view name, GrammarKind kind, std::string text,
         std::optional<ConstraintSpec>& out) {
  if (out) {
    if (out->source.kind == kind && out->source.text == text) return;
    return reader.fail(name, fmt::format("can't be combined with {}", out->field));
  }
  out.emplace();
  out->source.kind = kind;
  out->source.text = std::move(text);
  out->field = reader.full_name(name);
}

void read_text_grammar(FieldReader& reader, const char* name, GrammarKind kind,
                       std::optional<ConstraintSpec>& out) {
  std::string text;
  reader.text(name, text);
  if (text.empty()) return;
  if (kind == GrammarKind::kLark && looks_like_gbnf(text)) kind = GrammarKind::kGbnf;
  set(reader, name, kind, std::move(text), out);
}

void read_choice(FieldReader& reader, const char* name, std::optional<ConstraintSpec>& out) {
  const Json* choice = reader.find(name);
  if (choice == nullptr) return;
  if (!choice->is_array() || choice->empty())
    return reader.expected(name, "an array of at least one string", *choice);
  for (std::size_t i = 0; i < choice->size(); ++i) {
    if (!(*choice)[i].is_string())
      return reader.expected(fmt::format("{}[{}]", name, i), "a string", (*choice)[i]);
  }
  set(reader, name, GrammarKind::kChoice, dump_json(*choice), out);
}

// A schema as an object, or as text.
void read_json(FieldReader& reader, const char* name, std::optional<ConstraintSpec>& out) {
  const Json* schema = reader.find(name);
  if (schema == nullptr) return;
  if (!schema->is_string()) return constrain_to_schema(reader, name, *schema, out);
  set(reader, name, GrammarKind::kJsonSchema, schema->get<std::string>(), out);
}

void read_named_schema(FieldReader& reader, std::optional<ConstraintSpec>& out) {
  std::string name;
  bool strict = false;  // every schema is kept to
  reader.text("name", name);
  reader.boolean("strict", strict);
  const Json* schema = reader.find("schema");
  if (reader.ok() && schema == nullptr) return reader.fail("schema", "is required");
  if (schema != nullptr) constrain_to_schema(reader, "schema", *schema, out);
}

void read_structured_outputs(FieldReader& reader, std::optional<ConstraintSpec>& out) {
  const Json* object = reader.find("structured_outputs");
  if (object == nullptr) return;
  FieldReader nested(*object, reader.full_name("structured_outputs"));
  for (const char* name : {"structural_tag", "whitespace_pattern"}) {
    const Json* value = nested.find(name);
    if (value != nullptr) nested.fail(name, fmt::format("is not supported; got {}", json_excerpt(*value)));
  }
  for (const char* name : {"disable_any_whitespace", "disable_additional_properties"}) {
    bool on = false;
    nested.boolean(name, on);
    if (on) nested.fail(name, "is not supported");
  }
  read_json(nested, "json", out);
  read_text_grammar(nested, "regex", GrammarKind::kRegex, out);
  read_choice(nested, "choice", out);
  read_text_grammar(nested, "grammar", GrammarKind::kLark, out);
  bool any_object = false;
  nested.boolean("json_object", any_object);
  if (any_object) set(nested, "json_object", GrammarKind::kJsonObject, {}, out);
  if (!nested.ok()) reader.fail(nested.status());
}

// {"type": "json_schema", "json_schema": {"name", "schema", "strict"}}, json_object or text, which is no
// constraint.
void read_response_format(FieldReader& parent, std::optional<ConstraintSpec>& out) {
  const std::string_view name = "response_format";
  const Json* format = parent.find(name);
  if (format == nullptr) return;
  FieldReader reader(*format, parent.full_name(name));
  std::string type;
  reader.text("type", type);
  if (!reader.ok()) return parent.fail(reader.status());
  if (type == "json_schema") {
    const Json* nested = reader.find("json_schema");
    if (nested == nullptr) {
      reader.fail("json_schema", "is required");
    } else {
      FieldReader schema(*nested, reader.full_name("json_schema"));
      read_named_schema(schema, out);
      if (!schema.ok()) reader.fail(schema.status());
    }
  } else if (type == "json_object") {
    // llama.cpp takes a schema here as well.
    const Json* schema = reader.find("schema");
    if (schema != nullptr)
      constrain_to_schema(reader, "schema", *schema, out);
    else
      constrain_to_object(parent, name, out);
  } else if (type != "text") {
    reader.expected("type", "text, json_object or json_schema", format->value("type", Json()));
  }
  if (!reader.ok()) parent.fail(reader.status());
}

}  // namespace

void constrain_to_schema(FieldReader& reader, std::string_view name, const Json& schema,
                         std::optional<ConstraintSpec>& out) {
  if (!schema.is_object() && !schema.is_boolean())
    return reader.expected(name, "a JSON schema: an object", schema);
  set(reader, name, GrammarKind::kJsonSchema, dump_json(schema), out);
}

void constrain_to_object(FieldReader& reader, std::string_view name, std::optional<ConstraintSpec>& out) {
  set(reader, name, GrammarKind::kJsonObject, {}, out);
}

void read_guides(FieldReader& reader, std::optional<ConstraintSpec>& out) {
  read_text_grammar(reader, "grammar", GrammarKind::kLark, out);
  read_json(reader, "guided_json", out);
  read_text_grammar(reader, "guided_regex", GrammarKind::kRegex, out);
  read_choice(reader, "guided_choice", out);
  read_text_grammar(reader, "guided_grammar", GrammarKind::kLark, out);
  read_text_grammar(reader, "regex", GrammarKind::kRegex, out);
  read_text_grammar(reader, "ebnf", GrammarKind::kLark, out);
  read_structured_outputs(reader, out);
}

void read_constraint(FieldReader& reader, std::optional<ConstraintSpec>& out) {
  read_response_format(reader, out);
  const Json* schema = reader.find("json_schema");
  // {} is llama.cpp's "none".
  if (schema != nullptr && !(schema->is_object() && schema->empty())) read_json(reader, "json_schema", out);
  read_guides(reader, out);
}

}  // namespace loci
