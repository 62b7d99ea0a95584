// SPDX-License-Identifier: Apache-2.0
// From the bodies of OpenAI's two completions to tokens: done on a worker. No networking.
#pragma once

#include <string_view>

#include "loci/serve/api/openai/reply_head.h"
#include "loci/serve/generation/prepare.h"

namespace loci {

// All of these: thread-safe.

Prepared prepare_chat_completion(std::string_view body, const ServedModel& served, TokenHistory& history,
                                 std::string_view tenant);
// `head` has the reply's id, time and model; the request's wishes are filled in. Sets the generation's
// format.
Prepared prepare_completion(std::string_view body, const ServedModel& served, ReplyHead head,
                            std::string_view tenant = {});

}  // namespace loci
