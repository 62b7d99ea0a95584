// SPDX-License-Identifier: Apache-2.0
// Translates llama.cpp's grammars (GBNF) to the Lark that deps/ compiles.
//
// Rules that refer to no recursive rule become one regular expression each, so a grammar without recursion
// keeps its exact meaning. Recursive rules become rules of a parser over those expressions, which match
// greedily. So every reply belongs to the grammar, but if two parts begin alike only the longest match is
// possible.
#pragma once

#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// Errors: kInvalidArgument with the line and what was expected there; also for an undefined rule or a missing
// "root".
Result<std::string> gbnf_to_lark(std::string_view gbnf);

}  // namespace loci
