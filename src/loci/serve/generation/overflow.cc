// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/overflow.h"

#include <algorithm>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

std::uint32_t uncut_tokens(const TruncationRule& rule) { return rule.context_tokens / 2; }

std::uint32_t system_prompt_tokens(const ChatTemplate& chat_template, std::string_view context,
                                   const std::vector<TokenId>& prompt) {
  Json bare = json_or_null(context);
  const auto messages = bare.is_object() ? bare.find("messages") : bare.end();
  if (messages == bare.end() || !messages->is_array()) return 0;
  Json kept = Json::array();
  for (const auto& message : *messages) {
    const std::string role = message.is_object() ? message.value("role", "") : "";
    if (role != "system" && role != "developer") break;
    kept.push_back(message);
  }
  kept.push_back({{"role", "user"}, {"content", ""}});
  *messages = std::move(kept);
  const Result<std::vector<TokenId>> tokens = chat_template.encode(dump_json(bare));
  if (!tokens.ok()) return 0;
  const auto parting = std::mismatch(prompt.begin(), prompt.end(), tokens->begin(), tokens->end());
  return static_cast<std::uint32_t>(parting.first - prompt.begin());
}

std::uint32_t tokens_of(const std::vector<TokenRange>& ranges) {
  return ranges.empty() ? 0 : ranges.back().end - ranges.front().begin;
}

std::vector<TokenId> without(const std::vector<TokenId>& prompt, const std::vector<TokenRange>& ranges) {
  std::vector<TokenId> kept = prompt;
  if (!ranges.empty()) kept.erase(kept.begin() + ranges.front().begin, kept.begin() + ranges.back().end);
  return kept;
}

}  // namespace loci
