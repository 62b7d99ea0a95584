// SPDX-License-Identifier: Apache-2.0
// A model's chat template (Jinja, as models ship it), rendered by minijinja behind the C ABI in deps/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/model/tokenizer.h"

namespace loci {

// A part of a rendered conversation: text, and the control token that the template wrote after it. The last
// segment has no control token.
struct ChatSegment {
  std::string text;
  std::optional<TokenId> control;
};

// Immutable and thread-safe.
class ChatTemplate {
 public:
  // Errors: kInvalidArgument with the template's line and the parser's message.
  static Result<ChatTemplate> parse(std::string_view source, const Tokenizer& tokenizer);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders a conversation and tokenises it. `context_json` is the template's context as one JSON object:
  // {"messages": [...], "tools": [...], "add_generation_prompt": true, ...}; bos_token and eos_token are
  // supplied. Text inside the context that spells a control token is tokenised as plain text: only what the
  // template itself writes becomes control tokens. Errors: kInvalidArgument with the template's message
  // (raise_exception) or the place of a failure. Time (in instructions) and the size of the output are
  // bounded.
  Result<std::vector<TokenId>> encode(std::string_view context_json) const;
  // The same without tokenising; at least one segment. encode() returns for each segment the tokens of
  // Tokenizer::encode_piece (the first with TextPlace::kFirst, the others with kInner), then the control
  // token.
  Result<std::vector<ChatSegment>> render_segments(std::string_view context_json) const;
  // Only the text, for people and tests.
  Result<std::string> render(std::string_view context_json) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace loci
