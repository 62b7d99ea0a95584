// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/anthropic/prepare_messages.h"

#include "loci/serve/anthropic/messages_request.h"
#include "loci/serve/request/chat_request.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"

namespace loci {
namespace {

// An error of the chat request that was made of a messages request, in the client's own terms.
ApiError in_messages_terms(ApiError error) {
  const std::string field = messages_field(error.param);
  if (field == error.param) return error;
  if (error.message.starts_with(error.param + ":"))
    error.message = field + error.message.substr(error.param.size());
  error.param = field;
  return error;
}

ApiError request_error(const Status& status) {
  ApiError error = api_error(status);
  if (error.param == "thread") error.code = kThreadUnsupported;
  return error;
}

Result<MessagesRequest> read(std::string_view body, MessagesPurpose purpose) {
  LOCI_ASSIGN_OR_RETURN(const Json json, parse_json(body));
  return parse_messages_request(json, purpose);
}

}  // namespace

Prepared prepare_messages(std::string_view body, const ServedModel& served, TokenHistory& history,
                          std::string_view tenant) {
  const Result<MessagesRequest> request = read(body, MessagesPurpose::kReply);
  if (!request.ok()) return request_error(request.status());
  Prepared prepared = prepare_chat_request(request->chat, served, history, tenant);
  if (auto* error = std::get_if<ApiError>(&prepared)) return in_messages_terms(std::move(*error));
  return prepared;
}

std::variant<std::string, ApiError> count_message_tokens(std::string_view body, const ServedModel& served,
                                                         TokenHistory& history, std::string_view tenant) {
  const Result<MessagesRequest> request = read(body, MessagesPurpose::kCount);
  if (!request.ok()) return request_error(request.status());
  const Result<ChatRequest> chat = parse_chat_request(request->chat, served.chat);
  if (!chat.ok()) return in_messages_terms(api_error(chat.status()));
  if (auto error = check_model(chat->fields.model, served)) return *std::move(error);
  const Result<std::vector<TokenId>> tokens = history.encode(*served.model, tenant, chat->template_context);
  if (!tokens.ok()) return api_error(tokens.status());
  return Json{{"input_tokens", tokens->size()}}.dump();
}

}  // namespace loci
