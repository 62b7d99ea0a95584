// Tokens are the truth (the design's idea 7): where tokens that the server has seen or sampled spell a
// prefix of what a template renders, they are used as they are instead of tokenising that text again.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/model/model.h"

namespace loci {

// Thread-safe.
class TokenHistory {
 public:
  // Renders the conversation (chat_template.h's context) and tokenises it.
  // Errors: as ChatTemplate::encode.
  Result<std::vector<TokenId>> encode(const Model& model, std::string_view tenant,
                                      std::string_view template_context);

  // What a sequence of the tenant's was: a prompt, and what the model added to it.
  void remember(std::string_view tenant, std::span<const TokenId> prompt, std::span<const TokenId> reply);
};

}  // namespace loci
