// SPDX-License-Identifier: Apache-2.0
// Parsing JSON that a stranger sent, within bounds (base/json_reader.h), and what errors show of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "loci/base/json_reader.h"
#include "loci/base/status.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Errors: kInvalidArgument with the place of the fault (bad syntax, text that is no UTF-8, a number that
// no double holds), or the limit that was passed and the field that does.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Text that the server wrote itself, or its model: null where it is no JSON, or is beyond twice the bounds of
// a body. (What is made of a body may nest its values deeper, and adds some.)
Json json_or_null(std::string_view text);

// `value` as one line of JSON of at most `bytes_max` bytes, for error messages; longer ones end in "...".
std::string json_excerpt(const Json& value, std::size_t bytes_max = 64);

// The longest prefix of `text` of at most `bytes_max` bytes that does not part a UTF-8 character.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes_max);

// The number of characters of text in UTF-8.
std::size_t count_characters(std::string_view text);

// "application/json", "application/json; charset=utf-8", "application/geo+json".
bool is_json_type(std::string_view content_type);

}  // namespace loci
