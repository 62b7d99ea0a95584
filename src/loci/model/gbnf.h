// SPDX-License-Identifier: Apache-2.0
// llama.cpp's grammars (GBNF) in the Lark that deps/ compiles.
//
// Rules that refer to no recursive rule become one regular expression each, so a grammar without recursion is
// kept to exactly. Recursive rules become rules of a parser over those expressions, which are read greedily:
// whatever comes out is of the grammar, but where two of its parts begin alike the longest is taken.
#pragma once

#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// Errors: kInvalidArgument with the line and what was expected there, a rule that is not defined, "root" that
// is missing.
Result<std::string> gbnf_to_lark(std::string_view gbnf);

}  // namespace loci
