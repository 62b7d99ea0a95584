// SPDX-License-Identifier: Apache-2.0
// What a client says that a reply must be: OpenAI's `response_format` (and `text.format` of its responses),
// vLLM's `guided_*` and `structured_outputs`, llama.cpp's `json_schema` and `grammar`. No networking here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "loci/model/grammar.h"
#include "loci/serve/request/field_reader.h"

namespace loci {

struct ConstraintSpec {
  GrammarSource source;
  // Where in the request the text is: what an error names ("response_format.json_schema.schema").
  std::string field;
};

// Where a format holds the schema: {"type": "json_schema", "json_schema": {"name", "schema", "strict"}} in
// chat completions, {"type": "json_schema", "name", "schema", "strict"} in responses.
enum class FormatShape : std::uint8_t { kNested, kFlat };

// The format object under `name` of what `parent` reads; {"type": "text"} and an absent one are no
// constraint.
void read_format(FieldReader& parent, std::string_view name, FormatShape shape,
                 std::optional<ConstraintSpec>& out);

// Every field of chat and text completions that constrains the reply; at most one may.
void read_constraint(FieldReader& reader, std::optional<ConstraintSpec>& out);

}  // namespace loci
