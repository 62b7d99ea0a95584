// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a response's request: no crash, and what is accepted has the shape that later
// steps rely on.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/conversation/template_context.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto json = loci::parse_json(body);
  if (!json.ok()) return 0;
  auto request = loci::parse_response_request(*json, size % 2 == 0);
  if (!request.ok()) {
    require(!request.status().message().empty() && request.status().message().size() < 4096);
    return 0;
  }
  require(!request->input.empty());
  require(request->conversation.empty() || request->previous_response_id.empty());
  loci::assign_ids(request->input);
  for (const auto& stored : loci::to_stored(request->input)) require(!stored.json.empty());
  loci::Conversation conversation;
  conversation.messages = loci::to_messages(request->input);
  conversation.tools = request->tools;
  if (loci::check_conversation(conversation, "input").ok())
    require(!loci::make_template_context(std::move(conversation), {}).empty());
  return 0;
}
