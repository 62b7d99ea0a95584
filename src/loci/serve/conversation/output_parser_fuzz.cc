// SPDX-License-Identifier: Apache-2.0
// Any text in any pieces, with any control tokens, in every syntax: no crash, nothing that a client must not
// see, and the same output however the text is cut.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/conversation/output_parser.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

constexpr std::array<std::string_view, 12> kTemplates = {
    "{{ messages }}",
    "{{ tools }}<|python_tag|>",
    "{{ tools }}<tool_call><think></think>",
    "{{ tools }}<tool_call><function=<parameter=",
    "{{ tools }}[TOOL_CALLS][ARGS]",
    "{{ tools }}<|start|><|channel|><|message|>",
    "{{ tools }}<｜tool▁calls▁begin｜><think>",
    "{{ tools }}<|tool_call><|channel>",
    "{{ tools }}<|tool|>",
    "{{ tools }}<|START_ACTION|><|START_THINKING|>",
    "{{ tools }}<function=",
    "{{ tools }}<|tool_call_begin|>",
};

std::string shown(const loci::ModelOutput& output) {
  std::string text = output.text() + "\n" + output.reasoning();
  for (const loci::ToolCall& call : output.tool_calls()) text += "\n" + call.name + call.arguments;
  return text;
}

// A byte 0x01 is followed by one that chooses a mark, which comes as a control token. `step`: bytes a piece.
loci::ModelOutput parse(const loci::OutputSyntax& syntax, std::string_view text, std::size_t step,
                        const loci::OutputParserOptions& options) {
  loci::OutputParser parser(syntax, options);
  const std::vector<std::string> marks = syntax.marks();
  loci::ModelOutput output;
  int depth = 0;
  const auto take = [&] {
    std::vector<loci::OutputPiece> pieces = parser.take();
    for (const loci::OutputPiece& piece : pieces) {
      if (std::holds_alternative<loci::ToolCallStart>(piece)) require(++depth == 1);
      if (std::holds_alternative<loci::ToolCallPiece>(piece)) require(depth == 1);
      if (std::holds_alternative<loci::ToolCallEnd>(piece)) require(--depth == 0);
    }
    output.append({.pieces = std::move(pieces), .logprobs = {}});
  };
  while (!text.empty()) {
    if (text.front() == '\1') {
      const std::size_t which = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0;
      parser.push_control(marks.empty() ? "<|other|>" : marks[which % marks.size()]);
      text.remove_prefix(std::min<std::size_t>(text.size(), 2));
    } else {
      std::size_t size = std::min(step, text.find('\1'));
      if (size > text.size()) size = text.size();
      parser.push(text.substr(0, size));
      text.remove_prefix(size);
    }
    take();
  }
  parser.finish();
  take();
  require(depth == 0 && parser.undecided() == 0);
  return output;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view source = kTemplates[data[0] % kTemplates.size()];
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  const loci::OutputSyntax syntax = loci::find_output_syntax(source, [](std::string_view) { return false; });
  const bool thinks = (data[1] & 1) != 0;
  loci::OutputParserOptions options = {.tool_names = {"f", "g"},
                                       .text_parameters = {{"f", {"a"}}},
                                       .begins_in_reasoning = thinks && !syntax.reasoning_open.empty()};
  if ((data[1] & 2) != 0) options.reasoning = loci::ReasoningPlace::kInText;
  options.continues = (data[1] & 4) != 0;
  if ((data[1] & 8) != 0) options.calls = loci::CallPlace::kInsteadOfText;
  if ((data[1] & 16) != 0) options.other_tools = loci::OtherTools::kText;
  const loci::ModelOutput all = parse(syntax, text, text.size() + 1, options);
  for (const loci::ToolCall& call : all.tool_calls())
    require(options.other_tools == loci::OtherTools::kCalled || call.name == "f" || call.name == "g");
  const std::string whole = shown(all);
  require(shown(parse(syntax, text, 1, options)) == whole);
  require(shown(parse(syntax, text, 5, options)) == whole);
  return 0;
}
