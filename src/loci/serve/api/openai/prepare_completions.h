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
// `head` names the reply; what the request says of it is filled in. The format is set here.
Prepared prepare_completion(std::string_view body, const ServedModel& served, ReplyHead head);

}  // namespace loci
