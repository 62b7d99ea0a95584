// SPDX-License-Identifier: Apache-2.0
// What becomes of a prompt that its context cannot hold: it is refused, or its oldest part is dropped after
// the system prompt (policy/truncation.h says where it is cut).
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

// What a server does where a request does not say.
struct OverflowRule {
  ContextOverflow overflow = ContextOverflow::kRefuse;
  TruncationRule truncation;
};

// Prompts up to this length are never cut, whatever stays in front of them.
std::uint32_t uncut_tokens(const TruncationRule& rule);

// Tokens at the beginning of a chat's prompt that its system prompt renders to, tools included: what it has
// in common with a chat of the same instructions in which nothing was said. 0 where the template refuses
// that. `context`: what `prompt` was rendered from (ChatTemplate::encode). As long as one rendering of the
// system prompt. Thread-safe.
std::uint32_t system_prompt_tokens(const ChatTemplate& chat_template, std::string_view context,
                                   const std::vector<TokenId>& prompt);

std::uint32_t tokens_of(const std::vector<TokenRange>& ranges);

// The prompt without the ranges, which are contiguous.
std::vector<TokenId> without(const std::vector<TokenId>& prompt, const std::vector<TokenRange>& ranges);

}  // namespace loci
