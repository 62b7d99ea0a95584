// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens: Anthropic's requests, as the requests of OpenAI's chat
// completions that mean the same. So both APIs share one way through templates, tools and grammars. No
// networking here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/request/json.h"

namespace loci {

// Whether the request asks for a reply (max_tokens is required then) or for its length in tokens.
enum class MessagesPurpose : std::uint8_t { kReply, kCount };

struct MessagesRequest {
  Json chat;  // for parse_chat_request
};

// Errors: kInvalidArgument naming Anthropic's field, value and limit.
Result<MessagesRequest> parse_messages_request(const Json& request, MessagesPurpose purpose);

// What Anthropic's API calls the field that is `chat_field` in the request made above: an error found
// there later ("tools[0].function.parameters") names what the client wrote ("tools[0].input_schema").
std::string messages_field(std::string_view chat_field);

}  // namespace loci
