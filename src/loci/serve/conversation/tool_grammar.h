// SPDX-License-Identifier: Apache-2.0
// What a reply that must call tools may be, as a grammar in the notation of the model's family.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/serve/conversation/output_syntax.h"
#include "loci/serve/conversation/tool_use.h"

namespace loci {

inline constexpr std::size_t kForcedCallsMax = 16;  // of one reply whose calls a grammar writes

// Where the choice is kRequired or kNamed: a grammar in llguidance's Lark (GrammarKind::kLark) of reasoning,
// where the family marks it, and then one call or, where the request and the family allow it, several, each
// with arguments that match the tool's schema. Otherwise nothing.
// `control_token` gives the id of a mark that is a control token. `in_reasoning`: the prompt has opened it.
// Errors: kInvalidArgument naming tool_choice, where the family's notation is not one that a grammar writes.
// Thread-safe.
Result<std::optional<std::string>> tool_grammar(
    const ToolUse& use, const OutputSyntax& syntax,
    const std::function<std::optional<TokenId>(std::string_view)>& control_token, bool in_reasoning);

}  // namespace loci
