// SPDX-License-Identifier: Apache-2.0
// What a client says that a reply must be: OpenAI's `response_format` (and `text.format` of its responses),
// vLLM's `guided_*` and `structured_outputs`, llama.cpp's `json_schema` and `grammar`, SGLang's `regex` and
// `ebnf`. No networking here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "loci/model/grammar.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {

struct ConstraintSpec {
  GrammarSource source;
  // Where in the request the text is: what an error names ("response_format.json_schema.schema").
  std::string field;
};

// The reply is JSON of the schema that stands under `name`, or any JSON object. A second constraint that
// says something else is an error.
void constrain_to_schema(FieldReader& reader, std::string_view name, const Json& schema,
                         std::optional<ConstraintSpec>& out);
void constrain_to_object(FieldReader& reader, std::string_view name, std::optional<ConstraintSpec>& out);

// Fields of vLLM (guided_json, guided_regex, guided_choice, guided_grammar, structured_outputs), llama.cpp
// (grammar) and SGLang (regex, ebnf). They and what constrained the reply before must say the same.
void read_guides(FieldReader& reader, std::optional<ConstraintSpec>& out);

// Every field of chat and text completions that constrains the reply; all that are given must say the same.
void read_constraint(FieldReader& reader, std::optional<ConstraintSpec>& out);

}  // namespace loci
