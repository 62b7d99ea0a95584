// SPDX-License-Identifier: Apache-2.0
// What happens to a prompt that the context cannot hold: it is refused, or the oldest part after its system
// prompt is dropped (policy/truncation.h says where it is cut).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/model/chat_template.h"
#include "loci/policy/truncation.h"

namespace loci {

enum class ContextOverflow : std::uint8_t { kRefuse, kTruncate };

// What a server does with requests that do not say it.
struct OverflowRule {
  ContextOverflow overflow = ContextOverflow::kRefuse;
  TruncationRule truncation;
};

// Prompts up to this length are never cut, however long their system prompt is.
std::uint32_t uncut_tokens(const TruncationRule& rule);

// How many tokens at the beginning of a chat's prompt are its system prompt, tools included: those that it
// has in common with a chat of the same instructions and no messages. 0: the template refuses such a chat.
// `context`: what `prompt` was rendered from (ChatTemplate::encode). Takes as long as rendering the system
// prompt once. Thread-safe.
std::uint32_t system_prompt_tokens(const ChatTemplate& chat_template, std::string_view context,
                                   const std::vector<TokenId>& prompt);

std::uint32_t tokens_of(const std::vector<TokenRange>& ranges);

// The prompt without the ranges, which are contiguous.
std::vector<TokenId> without(const std::vector<TokenId>& prompt, const std::vector<TokenRange>& ranges);

}  // namespace loci
