// SPDX-License-Identifier: Apache-2.0
// From the body of /v1/messages to tokens: done on a worker. No networking.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "loci/serve/generation/prepare.h"

namespace loci {

// Both: thread-safe. Errors name the fields of Anthropic's request.
Prepared prepare_messages(std::string_view body, const ServedModel& served, TokenHistory& history,
                          std::string_view tenant);
// The answer of /v1/messages/count_tokens.
std::variant<std::string, ApiError> count_message_tokens(std::string_view body, const ServedModel& served,
                                                         TokenHistory& history, std::string_view tenant);

}  // namespace loci
