// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of /v1/messages: no crash, a refusal can be sent, and what is accepted becomes a
// chat request whose messages the chat's own parser takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "loci/serve/anthropic/messages_request.h"
#include "loci/serve/request/chat_request.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"

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
  const loci::Json& chat = parsed->chat;
  require(purpose == loci::MessagesPurpose::kCount || chat["max_tokens"].get<double>() >= 1);
  require(chat["messages"].is_array() && !chat["messages"].empty());
  // Roles alternate, but for what tools answered.
  std::string before;
  for (const loci::Json& message : chat["messages"]) {
    const std::string role = message["role"];
    require(role != before || role == "tool");
    before = role;
  }
  require(before != "assistant");
  require(loci::read_template_context({{"messages", chat["messages"]}}).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = loci::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  check(*json, loci::MessagesPurpose::kReply);
  check(*json, loci::MessagesPurpose::kCount);
  return 0;
}
