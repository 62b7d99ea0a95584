// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions: the request's JSON as plain values. No networking here.
#pragma once

#include "loci/base/status.h"
#include "loci/serve/conversation/conversation.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/wire/json.h"

namespace loci {

// `defaults`: for the fields that the request leaves out. Errors: kInvalidArgument naming field, value and
// limit.
Result<ChatRequest> parse_chat_request(const Json& request, const RequestDefaults& defaults = {});

// Of a request that holds "messages" and maybe "tools" (/tokenize takes them too).
Result<Conversation> read_conversation(const Json& request);

}  // namespace loci
