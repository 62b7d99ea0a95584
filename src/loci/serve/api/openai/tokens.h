// SPDX-License-Identifier: Apache-2.0
// Texts and conversations as tokens, and back: /tokenize and /detokenize. No networking.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/model/tokenizer.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/json.h"

namespace loci {

// All of these: thread-safe.

// With `add_special` it begins with the model's beginning-of-sequence token where the model wants it.
Result<std::vector<TokenId>> encode_text(const Tokenizer& tokenizer, std::string_view text, bool add_special,
                                         ControlText control);
// The tokens of a request to /tokenize.
Result<std::vector<TokenId>> tokens_of_request(const Json& request, const ServedModel& served);

// Of more tokens /tokenize shows no texts: an answer stays below some tens of megabytes.
inline constexpr std::size_t kShownTokensMax = 1'000'000;

// A longer text /detokenize does not spell: with a million tokens it could have hundreds of megabytes.
inline constexpr std::size_t kTextBytesMax = std::size_t{8} << 20;

// The answers of /tokenize and /detokenize.
std::variant<std::string, ApiError> tokenize(std::string_view body, const ServedModel& served);
std::variant<std::string, ApiError> detokenize(std::string_view body, const ServedModel& served);

}  // namespace loci
