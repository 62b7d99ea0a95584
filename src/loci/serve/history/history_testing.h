// SPDX-License-Identifier: Apache-2.0
// What the tests of the history share: small vocabularies, chats, and tokenisations that no tokenizer makes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/model/chat_template.h"
#include "loci/model/text_testing.h"
#include "loci/model/tokenizer.h"
#include "loci/serve/wire/json.h"

namespace loci {

using Tokens = std::vector<TokenId>;
using Messages = std::vector<std::pair<std::string, std::string>>;  // role, content

// Replies' reasoning is shown in the last turn alone.
inline constexpr const char* kReasoningTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
inline constexpr const char* kTrimmingTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
inline constexpr const char* kPlainTemplate =  // writes no control token
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

struct TestText {
  Tokenizer tokenizer;
  ChatTemplate chat;
};

inline TestText byte_level_text(const char* chat_template = kChatMlTemplate) {
  Tokenizer tokenizer =
      std::move(tokenizer_from(byte_level_writer({"<tool>"}, {"<think>", "</think>"}, 0))).value();
  ChatTemplate chat = std::move(ChatTemplate::parse(chat_template, tokenizer)).value();
  return {std::move(tokenizer), std::move(chat)};
}

inline std::string context_of(const Messages& messages, bool add_generation_prompt = true) {
  Json context = {{"messages", Json::array()}, {"add_generation_prompt", add_generation_prompt}};
  for (const auto& [role, content] : messages)
    context["messages"].push_back({{"role", role}, {"content", content}});
  return context.dump();
}

// The text that a client gets.
inline std::string shown(const Tokenizer& tokenizer, const Tokens& tokens) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId token : tokens) text += decoder.push(token);
  return text + decoder.finish();
}

// Any tokens that spell the text, few of them those that tokenising gives.
inline Tokens random_tokens(const Tokenizer& tokenizer, std::string_view text, Random& random) {
  Tokens tokens;
  while (!text.empty()) {
    Tokens fitting;
    for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      const std::string_view spelling = tokenizer.token_spelling(TokenId(id));
      if (!tokenizer.is_control(TokenId(id)) && !spelling.empty() && text.starts_with(spelling))
        fitting.emplace_back(id);
    }
    tokens.push_back(fitting[random.below(fitting.size())]);
    text.remove_prefix(tokenizer.token_spelling(tokens.back()).size());
  }
  return tokens;
}

// A byte each, control tokens beyond.
using Symbols = std::vector<std::uint32_t>;

inline Symbols symbols_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  Symbols symbols;
  for (const TokenId token : tokens) {
    if (tokenizer.is_control(token)) {
      symbols.push_back(256 + token.value);
    } else {
      for (const char byte : tokenizer.token_spelling(token))
        symbols.push_back(static_cast<unsigned char>(byte));
    }
  }
  return symbols;
}

inline Symbols symbols_of(const std::vector<ChatSegment>& segments) {
  Symbols symbols;
  for (const ChatSegment& segment : segments) {
    for (const char byte : segment.text) symbols.push_back(static_cast<unsigned char>(byte));
    if (segment.control) symbols.push_back(256 + segment.control->value);
  }
  return symbols;
}

}  // namespace loci
