// SPDX-License-Identifier: Apache-2.0
// How a model writes reasoning and calls of tools: found once, from its chat template and vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// What tells one family's calls from another's.
enum class ToolDialect : std::uint8_t {
  kGeneric,      // the template knows no tools: a JSON object a line, as our own system text asks
  kBareJson,     // Llama 3.1 and later: {"name": ..., "parameters": {...}} is the whole reply
  kHermes,       // Qwen 2.5 and 3, Hermes, SmolLM3, Granite 4: <tool_call>{...}</tool_call>
  kQwenXml,      // Qwen3-Coder: <function=name><parameter=key>value</parameter></function>
  kMistral,      // [TOOL_CALLS][{...}], and [TOOL_CALLS]name[ARGS]{...}
  kHarmony,      // gpt-oss: channels, and to=functions.name
  kDeepSeek,     // V3, R1, V3.1: <｜tool▁call▁begin｜>...
  kGemma4,       // <|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>
  kPhi4,         // <|tool_call|>[{...}]<|/tool_call|>, functools[{...}]
  kGranite,      // <|tool_call|>[{...}]
  kCommandR7b,   // <|START_ACTION|>[{"tool_name": ..., "parameters": {...}}]<|END_ACTION|>
  kCommandR,     // Action: ```json [...] ```
  kFunctionary,  // v3.1: <function=name>{...}</function>
  kKimi,         // K2: <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}
};
std::string_view dialect_name(ToolDialect dialect);

// What stands between a call's opening mark and its end.
enum class CallBody : std::uint8_t {
  kJson,        // JSON: one call {"name", "arguments"}, or an array of such
  kNameJson,    // a header with the name, then the arguments' JSON object
  kEither,      // whichever of the two the first character begins
  kNameXml,     // a header with the name, then <parameter=key>value</parameter> ...
  kNameGemma4,  // a header with the name, then the arguments in Gemma 4's notation
};

struct OutputSyntax {
  ToolDialect dialect = ToolDialect::kGeneric;

  std::string reasoning_open;  // empty: the model marks no reasoning
  std::string reasoning_close;

  // Marks that open a call or a list of calls.
  std::vector<std::string> call_open;
  // Marks around a list of calls. Between calls they mean no more than white space.
  std::vector<std::string> wrappers;
  std::vector<std::string> call_close;  // follow a call, in any number
  CallBody body = CallBody::kJson;
  // Of two forms that a family has had, the later: Mistral's name[ARGS]{...}, DeepSeek V3.1's name<sep>{...}.
  bool later_form = false;
  bool call_ids = false;             // Mistral: with [CALL_ID]
  std::vector<std::string> ignored;  // marks that say nothing ("<|START_RESPONSE|>")

  bool harmony() const { return dialect == ToolDialect::kHarmony; }
  // A reply that begins as JSON does may be a call.
  bool bare_calls() const { return dialect == ToolDialect::kGeneric || dialect == ToolDialect::kBareJson; }
  // The tool's name in what stands between the opening mark and the arguments; empty: there is none.
  std::string name_in_header(std::string_view header) const;
  // Whether replies have marks that must be parsed even where no tools are given.
  bool always_parsed() const { return harmony() || !reasoning_open.empty() || !ignored.empty(); }
  // All marks that may be tokens of their own: what a Choice lets through to the parser.
  std::vector<std::string> marks() const;
};

// `in_vocabulary` says whether a text is a token. Thread-safe.
OutputSyntax find_output_syntax(std::string_view template_source,
                                const std::function<bool(std::string_view)>& in_vocabulary);

}  // namespace loci
