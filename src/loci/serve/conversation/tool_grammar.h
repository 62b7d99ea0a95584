// SPDX-License-Identifier: Apache-2.0
// What a reply may be that must call tools, or that calls tools or has constrained content, as a grammar in
// the notation of the model's family.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/serve/conversation/output_syntax.h"
#include "loci/serve/conversation/response_format.h"
#include "loci/serve/conversation/tool_use.h"

namespace loci {

inline constexpr std::size_t kForcedCallsMax = 16;  // of one reply whose calls a grammar writes

// The schema to which grammars hold the tool's arguments, as text: that of an object, whose properties are
// those that are declared.
std::string arguments_schema(const Tool& tool);

// Where the choice is kRequired or kNamed: a grammar in llguidance's Lark (GrammarKind::kLark) of reasoning,
// where the family marks it, and then one call or, where the request and the family allow it, several, each
// with arguments that match the tool's schema. Otherwise nothing.
// `control_token` gives the id of a mark that is a control token. `in_reasoning`: the prompt has opened it.
// Errors: kInvalidArgument naming tool_choice, where the family's notation is not one that a grammar writes.
// Thread-safe.
Result<std::optional<std::string>> tool_grammar(
    const ToolUse& use, const OutputSyntax& syntax,
    const std::function<std::optional<TokenId>(std::string_view)>& control_token, bool in_reasoning);

// Where the reply may call only some of the tools (ToolUse::allowed): a grammar, likewise, of reasoning and
// then text, in which what begins a call goes on as a call of one of these, with any object for arguments.
// Nothing where calls are text like any other, or are not written by a grammar: there it is left to whoever
// reads the reply to take calls of other tools for text (OtherTools). Thread-safe.
std::optional<std::string> allowed_calls_grammar(
    const ToolUse& use, const OutputSyntax& syntax,
    const std::function<std::optional<TokenId>(std::string_view)>& control_token, bool in_reasoning);

// For a reply that may call tools, and whose content has a constraint: a frame (GrammarSource) of reasoning,
// where the family marks it, and then calls, or the content. A call's arguments match the tool's schema if
// the tool is strict, else they are any object.
//
// A grammar's parser sees a text as words, and takes the longest that begins alike. So what begins a call
// must differ from what begins the content: a control token does from all text. Calls that are text go with
// JSON alone, and those that are bare JSON are written of JSON's words. Errors: kInvalidArgument naming the
// constraint's field, where the two can't be told apart, or the family's calls are not written by a grammar.
// Thread-safe.
Result<std::string> calls_or_content_frame(
    const ToolUse& use, const ConstraintSpec& constraint, const OutputSyntax& syntax,
    const std::function<std::optional<TokenId>(std::string_view)>& control_token, bool in_reasoning);

}  // namespace loci
