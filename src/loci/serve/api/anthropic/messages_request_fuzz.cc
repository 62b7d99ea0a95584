// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of /v1/messages: no crash, a refusal can be sent, and what is accepted becomes a
// conversation that a template can show.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "loci/serve/api/anthropic/messages_request.h"
#include "loci/serve/conversation/template_context.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const loci::Json& request, loci::MessagesPurpose purpose) {
  const auto parsed = loci::parse_messages_request(request, purpose);
  if (!parsed.ok()) {
    require(!parsed.status().message().empty() && parsed.status().message().size() < 4096);
    return;
  }
  require(purpose == loci::MessagesPurpose::kCount || parsed->fields.max_tokens >= 1u);
  const loci::Conversation& conversation = parsed->conversation;
  require(loci::check_conversation(conversation, "messages").ok());
  // Roles alternate, but for what tools answered.
  std::optional<loci::Role> before;
  for (const loci::Message& message : conversation.messages) {
    require(message.role != before || message.role == loci::Role::kTool);
    before = message.role;
  }
  require(before != loci::Role::kAssistant);
  require(!loci::make_template_context(conversation, {}).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = loci::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  check(*json, loci::MessagesPurpose::kReply);
  check(*json, loci::MessagesPurpose::kCount);
  return 0;
}
