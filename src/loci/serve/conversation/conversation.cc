// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/conversation.h"

#include <fmt/format.h>

#include <utility>

#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

constexpr std::size_t kArgumentValuesMax = 65'536;  // of one call

}  // namespace

Json call_arguments(std::string_view text) {
  if (text.find_first_not_of(" \n\r\t") == std::string_view::npos) return Json::object();
  Result<Json> value = parse_json(text, {.values_max = kArgumentValuesMax});
  return value.ok() && value->is_object() ? std::move(*value) : Json(std::string(text));
}

Status check_conversation(const Conversation& conversation, std::string_view field) {
  if (conversation.messages.empty())
    return invalid_argument("expected at least one message; got none", std::string(field));
  for (const Message& message : conversation.messages) {
    if (message.calls.size() <= kMessageCallsMax) continue;
    return invalid_argument(fmt::format("expected at most {} calls in one message; got {}", kMessageCallsMax,
                                        message.calls.size()),
                            std::string(field));
  }
  return {};
}

}  // namespace loci
