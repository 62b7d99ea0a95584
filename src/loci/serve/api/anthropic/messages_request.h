// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens: Anthropic's requests as plain values. No networking here.
#pragma once

#include <cstdint>

#include "loci/base/status.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Whether the request asks for a reply (max_tokens is required then) or for its length in tokens.
enum class MessagesPurpose : std::uint8_t { kReply, kCount };

// `defaults`: for the fields that the request leaves out. Errors: kInvalidArgument naming Anthropic's field,
// value and limit.
Result<ChatRequest> parse_messages_request(const Json& request, MessagesPurpose purpose,
                                           const RequestDefaults& defaults = {});

}  // namespace loci
