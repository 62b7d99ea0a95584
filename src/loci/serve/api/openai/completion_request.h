// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: the request's JSON as plain values. No networking here.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/wire/json.h"

namespace loci {

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// As OpenAI's API has it: clients of its older endpoint count on short replies.
inline constexpr std::uint32_t kCompletionTokensDefault = 16;

struct CompletionRequest {
  GenerationFields fields;
  std::vector<Prompt> prompts;  // at least one; fields.choices (best_of) are generated for each
  std::uint32_t kept = 1;       // n: so many of them, the likeliest, are in the reply
  bool echo = false;            // each choice's text begins with its prompt
  // The log-probabilities of the prompt's tokens come before those of the reply's.
  bool scores_prompt() const { return echo && fields.sampling.logprobs; }
};

// Errors: kInvalidArgument naming field, value and limit.
// The names of the fields of completions that generation_field_names() does not have.
std::span<const std::string_view> completion_field_names();

Result<CompletionRequest> parse_completion_request(const Json& request, const RequestDefaults& defaults = {});

}  // namespace loci
