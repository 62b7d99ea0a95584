// SPDX-License-Identifier: Apache-2.0
// What a model said, by meaning: text, reasoning, calls of tools. The formats of the APIs (reply_format.h)
// turn it into JSON; the parser of a template's family (output_parser.h) makes it from the model's text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace loci {

// One token as a client sees it.
struct LogprobEntry {
  std::string bytes;  // not necessarily whole characters
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;  // best first
  std::uint64_t text_offset = 0;                   // characters of the reply before it
};

// --- as it arrives ---

struct TextPiece {
  std::string text;
};
struct ReasoningPiece {
  std::string text;
};
struct ToolCallStart {
  std::string id;  // "call_..."
  std::string name;
};
// Of the call that started last: a piece of its arguments, which together are one JSON object.
struct ToolCallPiece {
  std::string arguments;
};
struct ToolCallEnd {};

using OutputPiece = std::variant<TextPiece, ReasoningPiece, ToolCallStart, ToolCallPiece, ToolCallEnd>;

struct OutputDelta {
  std::vector<OutputPiece> pieces;
  std::vector<LogprobEntry> logprobs;
  std::uint32_t tokens = 0;  // of the choice, up to here

  bool empty() const { return pieces.empty() && logprobs.empty(); }
};

// --- as a whole ---

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON
};

// Parts in the order in which they came; neighbouring pieces of a kind are one part.
struct ModelOutput {
  std::vector<std::variant<TextPiece, ReasoningPiece, ToolCall>> parts;
  std::vector<LogprobEntry> logprobs;

  void append(OutputDelta delta);
  std::string text() const;
  std::string reasoning() const;
  std::vector<ToolCall> tool_calls() const;
};

}  // namespace loci
