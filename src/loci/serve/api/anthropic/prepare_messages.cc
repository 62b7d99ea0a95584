// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/anthropic/prepare_messages.h"

#include <utility>

#include "loci/serve/api/anthropic/messages_request.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

ApiError request_error(const Status& status) {
  ApiError error = api_error(status);
  if (error.param == "thread") error.code = kThreadUnsupported;
  return error;
}

Result<ChatRequest> read(std::string_view body, MessagesPurpose purpose, const RequestDefaults& defaults) {
  LOCI_ASSIGN_OR_RETURN(const Json json, parse_json(body));
  return parse_messages_request(json, purpose, defaults);
}

}  // namespace

Prepared prepare_messages(std::string_view body, const ServedModel& served, TokenHistory& history,
                          std::string_view tenant) {
  Result<ChatRequest> request = read(body, MessagesPurpose::kReply, served.defaults);
  if (!request.ok()) return request_error(request.status());
  return prepare_chat(std::move(*request), "messages", served, history, tenant);
}

std::variant<std::string, ApiError> count_message_tokens(std::string_view body, const ServedModel& served,
                                                         TokenHistory& history, std::string_view tenant) {
  Result<ChatRequest> request = read(body, MessagesPurpose::kCount, served.defaults);
  if (!request.ok()) return request_error(request.status());
  if (auto error = check_model(request->fields.model, served)) return *std::move(error);
  const Result<EncodedConversation> prompt =
      encode_conversation(std::move(request->conversation), "messages", served, history, tenant);
  if (!prompt.ok()) return api_error(prompt.status());
  return dump_json({{"input_tokens", prompt->tokens.size()}});
}

}  // namespace loci
