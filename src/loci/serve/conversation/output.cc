// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/output.h"

#include <iterator>

namespace loci {
namespace {

// Adds the text to the last part if it is of the same kind, else as a part of its own.
template <class Piece>
void extend(ModelOutput& output, Piece& piece) {
  if (piece.text.empty()) return;
  Piece* last = output.parts.empty() ? nullptr : std::get_if<Piece>(&output.parts.back());
  if (last != nullptr)
    last->text += piece.text;
  else
    output.parts.emplace_back(std::move(piece));
}

template <class Piece>
std::string joined(const ModelOutput& output) {
  std::string text;
  for (const auto& part : output.parts) {
    if (const auto* piece = std::get_if<Piece>(&part)) text += piece->text;
  }
  return text;
}

}  // namespace

void ModelOutput::append(OutputDelta delta) {
  for (OutputPiece& piece : delta.pieces) {
    if (auto* text = std::get_if<TextPiece>(&piece)) {
      extend(*this, *text);
    } else if (auto* reasoning = std::get_if<ReasoningPiece>(&piece)) {
      extend(*this, *reasoning);
    } else if (auto* start = std::get_if<ToolCallStart>(&piece)) {
      parts.emplace_back(ToolCall{std::move(start->id), std::move(start->name), {}});
    } else if (auto* arguments = std::get_if<ToolCallPiece>(&piece)) {
      if (auto* call = parts.empty() ? nullptr : std::get_if<ToolCall>(&parts.back()))
        call->arguments += arguments->arguments;
    }
  }
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(logprobs));
}

std::string ModelOutput::text() const { return joined<TextPiece>(*this); }
std::string ModelOutput::reasoning() const { return joined<ReasoningPiece>(*this); }

std::vector<ToolCall> ModelOutput::tool_calls() const {
  std::vector<ToolCall> calls;
  for (const auto& part : parts) {
    if (const auto* call = std::get_if<ToolCall>(&part)) calls.push_back(*call);
  }
  return calls;
}

}  // namespace loci
