// SPDX-License-Identifier: Apache-2.0
// Replies of /v1/completions: text as the model wrote it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loci/serve/api/openai/reply_head.h"
#include "loci/serve/generation/reply_format.h"

namespace loci {

// What a reply shows of what was generated.
struct CompletionShape {
  std::vector<std::string> echoed;  // each prompt's text, with which its choices begin; empty: none do
  std::uint32_t generated = 1;      // choices of each prompt
  std::uint32_t kept = 1;           // the likeliest of those, by the mean log-probability of a token; fewer
                                    // than `generated` only in a reply that is not streamed
};

std::unique_ptr<ReplyFormat> make_completion_format(ReplyHead head, CompletionShape shape = {});

}  // namespace loci
