// SPDX-License-Identifier: Apache-2.0
// Parsing JSON that a stranger sent: bounded in depth, in the number of values and in the members of one
// object, so that a small body can't become a large tree, or a slow one. Where a key appears twice the last
// one counts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/wire/json.h"

namespace loci {

struct JsonLimits {
  std::size_t depth_max = 64;
  std::size_t values_max = 1'000'000;  // elements and members of all arrays and objects together
  std::size_t members_max = 2'048;     // of one object: finding one is linear (json.h)
};

// Errors: kInvalidArgument with the place of the fault (bad syntax, text that is no UTF-8, a number that
// no double holds) or the limit that was passed.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// `value` as one line of JSON of at most `bytes_max` bytes, for error messages; longer ones end in "...".
std::string json_excerpt(const Json& value, std::size_t bytes_max = 64);

// The longest prefix of `text` of at most `bytes_max` bytes that does not part a UTF-8 character.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes_max);

// The number of characters of text in UTF-8.
std::size_t count_characters(std::string_view text);

// "application/json", "application/json; charset=utf-8", "application/geo+json".
bool is_json_type(std::string_view content_type);

// `text` with every byte that is no visible ASCII character or blank written as \\xNN: for logs.
std::string visible_ascii(std::string_view text);

}  // namespace loci
