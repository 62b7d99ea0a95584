// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize: the requests' JSON as plain values. Both llama.cpp's shape ("content")
// and vLLM's ("prompt", "messages") are taken. No networking here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/serve/conversation/conversation.h"
#include "loci/serve/wire/json.h"

namespace loci {

struct TokenizeRequest {
  std::string text;
  std::optional<Conversation> conversation;  // "messages": rendered and tokenised instead of text
  bool add_special = false;   // begin with the model's beginning-of-sequence token where it has one
  bool parse_special = true;  // text that spells a control token becomes it
  bool with_pieces = false;   // tokens are objects with their texts (llama.cpp)
  bool with_texts = false;    // a list beside the tokens has their texts (vLLM)
};

struct DetokenizeRequest {
  std::vector<TokenId> tokens;
};

// Errors: kInvalidArgument naming field, value and limit.
Result<TokenizeRequest> parse_tokenize_request(const Json& request);
Result<DetokenizeRequest> parse_detokenize_request(const Json& request);

}  // namespace loci
