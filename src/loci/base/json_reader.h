// SPDX-License-Identifier: Apache-2.0
// Reading JSON that a stranger wrote: bounded in depth, in the number of values and in the members of one
// object, so that a small text can't become a large tree, or a slow one. The library (nlohmann's) reads
// without recursion but prints and compares with a call for each level, so a text that is nested without a
// limit would overflow the stack later.
//
// The bounds are tested on the text, before the library sees it: no memory, one pass over the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

struct JsonLimits {
  std::size_t depth_max = 64;
  std::size_t values_max = 1'000'000;  // elements and members of all arrays and objects together
  std::size_t members_max = 2'048;     // of one object: finding one can be linear (ordered_json)
};
// Of files, which may be as large as they like: bounded in depth alone. Not for ordered_json.
inline constexpr JsonLimits kJsonFileLimits = {.values_max = std::numeric_limits<std::size_t>::max(),
                                               .members_max = std::numeric_limits<std::size_t>::max()};

// kInvalidArgument with the limit that the text passes, and where: by the byte, and, if it is inside of an
// object or an array, by the field ("tools[0].function.parameters", of which a deep one is cut off).
Status check_json_limits(std::string_view text, const JsonLimits& limits);

enum class JsonFault : std::uint8_t { kNone, kLimit, kSyntax };

template <class Json>
struct JsonRead {
  Json value;
  JsonFault fault = JsonFault::kNone;
  std::string what;      // the fault, for people: in one line of visible ASCII
  std::size_t byte = 0;  // of a fault of syntax, from 1 on; 0: nobody knows where
  std::string field;     // in which a limit is passed, in visible ASCII; empty: in none, or nobody knows

  bool ok() const { return fault == JsonFault::kNone; }
};

// An error of the library without its number, and not all of a long text that it quotes.
std::string json_error_text(std::string_view what);

// Json: nlohmann::json or nlohmann::ordered_json. Where a key appears twice the last one counts. Compiled for
// both in json_reader.cc, once: the library's parser takes longer to compile than most sources that read.
template <class Json>
JsonRead<Json> read_json(std::string_view text, const JsonLimits& limits);

}  // namespace loci
