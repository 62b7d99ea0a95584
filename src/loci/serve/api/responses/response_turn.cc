// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/response_turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "loci/base/hex.h"
#include "loci/serve/api/responses/ids.h"
#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/store/stored_text.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

ApiError at_field(ApiError error, const std::string& field, const std::string& code) {
  error.message = field + ": " + error.message;
  error.param = field;
  error.code = code;
  return error;
}

// The history that `field` names takes more than is read.
ApiError too_large(const Status& status, const std::string& field) {
  ApiError error = http_error(
      400,
      fmt::format("its history is too long: {} (the limit is the larger of option max_body and {} bytes for "
                  "each token of the context); {}begin another",
                  status.message(), kHistoryBytesPerToken,
                  field == "conversation" ? "delete items of the conversation, or " : ""),
      "");
  return at_field(std::move(error), field, "context_length_exceeded");
}

// A reference names no item, or brings along more than is read of a history.
ApiError reference_error(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return store_error(status);
  ApiError error = http_error(
      400,
      fmt::format("{} (the limit is the larger of option max_body and {} bytes for each token of the "
                  "context); leave out references",
                  status.message(), kHistoryBytesPerToken),
      "");
  return at_field(std::move(error), status.field(), "context_length_exceeded");
}

// What `field` names is not there; or it cannot be known, which is no fault of the field.
ApiError load_error(const Status& status, std::string_view kind, const std::string& id,
                    const std::string& field, const std::string& code) {
  if (status.code() == StatusCode::kResourceExhausted) return too_large(status, field);
  ApiError error = store_error(status, kind, id);
  return status.code() == StatusCode::kNotFound ? at_field(std::move(error), field, code) : error;
}

std::variant<ResponseHistory, ApiError> load_previous(ConversationStore& store, std::string_view tenant,
                                                      const std::string& id, std::uint64_t bytes_max) {
  const std::string field = "previous_response_id";
  Result<StoredResponse> response = store.continued_response(tenant, id);
  if (!response.ok())
    return load_error(response.status(), "response", id, field, "previous_response_not_found");
  if (response->status != "completed" && response->status != "incomplete") {
    return api_error(invalid_argument(
        fmt::format("expected a completed response; '{}' is {}", utf8_prefix(id, 100), response->status),
        field));
  }
  if (!response->conversation.empty()) {
    return api_error(
        invalid_argument(fmt::format("'{}' is a turn of the conversation '{}': go on with conversation",
                                     utf8_prefix(id, 100), response->conversation),
                         field));
  }
  const Result<std::vector<StoredItem>> stored = store.response_history(tenant, id, bytes_max);
  if (stored.status().code() == StatusCode::kResourceExhausted) return too_large(stored.status(), field);
  if (!stored.ok()) {
    // A response before it was deleted: the store names it.
    ApiError error = store_error(stored.status());
    return stored.status().code() == StatusCode::kNotFound
               ? at_field(std::move(error), field, "previous_response_not_found")
               : error;
  }
  Result<std::vector<Item>> items = from_stored(stored.value());
  if (!items.ok()) return api_error(items.status());
  return ResponseHistory{.items = std::move(*items),
                         .bytes_max = bytes_max,
                         .tokens = std::move(response->tokens),
                         .tokenizer = std::move(response->tokenizer)};
}

// If the response `made` is stored already, the conversation ends with its items: they are read too, on top
// of `bytes_max`, and dropped.
std::variant<ResponseHistory, ApiError> load_conversation(ConversationStore& store, std::string_view tenant,
                                                          const std::string& id, std::uint64_t bytes_max,
                                                          const std::optional<std::string>& made) {
  Result<std::vector<StoredItem>> stored =
      store.conversation_history(tenant, id, made ? 2 * bytes_max : bytes_max);
  if (!stored.ok()) return load_error(stored.status(), "conversation", id, "conversation", "not_found");
  if (made) {
    const Result<ItemList> input = store.input_items(tenant, *made, {.after = {}, .limit = 1});
    if (!input.ok()) return store_error(input.status());
    const auto is_first = [&](const StoredItem& item) {
      return !input->items.empty() && item.id == input->items.front().id;
    };
    stored->erase(std::find_if(stored->begin(), stored->end(), is_first), stored->end());
  }
  Result<std::vector<Item>> items = from_stored(stored.value());
  if (!items.ok()) return api_error(items.status());
  ResponseHistory history{.items = std::move(*items), .bytes_max = bytes_max, .tokens = {}, .tokenizer = {}};
  // The latest turn's tokens, where it is still there: they are no more than a shorter way.
  for (auto item = stored.value().rbegin(); item != stored.value().rend(); ++item) {
    const std::string latest = response_of_item(item->id);
    if (latest.empty()) continue;
    if (Result<StoredResponse> response = store.continued_response(tenant, latest); response.ok()) {
      history.tokens = std::move(response->tokens);
      history.tokenizer = std::move(response->tokenizer);
    }
    break;
  }
  return history;
}

// An item's id is unique in a conversation.
Status check_ids(const std::vector<Item>& input, const std::vector<Item>& known) {
  std::set<std::string> ids;
  for (const Item& item : known) ids.insert(item.value("id", ""));
  for (std::size_t i = 0; i < input.size(); ++i) {
    const std::string id = input[i].at("id").get<std::string>();
    if (id.empty() || ids.insert(id).second) continue;
    return invalid_argument(fmt::format("expected an item that the conversation does not have; it has '{}'",
                                        utf8_prefix(id, 100)),
                            fmt::format("input[{}].id", i));
  }
  return {};
}

// What the store would refuse at the turn's end is refused before anything is computed.
Status check_stored(std::string_view tenant, const ResponseTurn& turn) {
  LOCI_RETURN_IF_ERROR(check_stored_turn(tenant, turn.waiting("in_progress")));
  return check_stored_items(turn.input, "input");
}

// The field that decides which conversation the turn becomes part of.
std::string_view kept_in(const ResponseRequest& request) {
  if (!request.conversation.empty()) return "conversation";
  return request.previous_response_id.empty() ? "input" : "previous_response_id";
}

ContextOverflow overflow_of(const ResponseRequest& request, const ServedModel& served) {
  if (request.truncation.empty()) return served.overflow.overflow;
  return request.truncation == "auto" ? ContextOverflow::kTruncate : ContextOverflow::kRefuse;
}

// Puts what the request's input refers to into it, and checks that it goes on from the history. Its earlier
// tokens are remembered: the state of what was said before is found by its tokens, whatever the tokenizer
// would make of its text.
std::optional<ApiError> join_history(ResponseRequest& request, const ResponseHistory& history,
                                     const ServedModel& served, TokenHistory& tokens,
                                     std::string_view tenant) {
  if (Status status = resolve_references(request.input, history.items, history.bytes_max, "input");
      !status.ok())
    return reference_error(status);
  if (Status status = check_call_outputs(request.input, history.items, "input"); !status.ok())
    return api_error(status);
  if (!request.conversation.empty()) {
    if (Status status = check_ids(request.input, history.items); !status.ok()) return api_error(status);
  }
  if (history.tokenizer == tokenizer_name(served)) tokens.remember(tenant, {}, history.tokens);
  return std::nullopt;
}

// What the model is to go on from.
ChatRequest chat_request(ResponseRequest& request, const ResponseHistory& history) {
  std::vector<Item> items = history.items;
  items.insert(items.end(), request.input.begin(), request.input.end());
  ChatRequest chat{.fields = std::move(request.fields), .conversation = {}, .unknown_fields = {}};
  Conversation& conversation = chat.conversation;
  conversation.messages = to_messages(items);
  if (!request.instructions.empty()) {
    conversation.messages.insert(conversation.messages.begin(),
                                 Message{.role = Role::kSystem, .content = request.instructions});
  }
  conversation.tools = std::move(request.tools);
  conversation.template_arguments = std::move(request.template_arguments);
  conversation.reasoning_effort = std::move(request.reasoning_effort);
  return chat;
}

}  // namespace

std::string tokenizer_name(const ServedModel& served) { return to_hex(served.model->spec.fingerprint); }

// --- the turn ---

StoredTurn ResponseTurn::waiting(const std::string& status) const {
  const ResponseHead& head = record->head();
  StoredTurn turn{.response = {.id = head.id,
                               .conversation = head.conversation,
                               .previous = previous,
                               .created_at = head.created_at,
                               .status = status,
                               .json = dump_json(response_json(head, status)),
                               .tokens = {},
                               .tokenizer = {}},
                  .claim = claim,
                  .input = {},
                  .output = {}};
  // A conversation gets its items when the turn has ended well: both or none.
  if (head.conversation.empty()) turn.input = input;
  return turn;
}

StoredTurn ResponseTurn::ended(const ResponseEnd& end, std::vector<TokenId> tokens) const {
  StoredTurn turn = waiting(end.status);
  const ResponseEnd shorter{.status = end.status,
                            .completed_at = end.completed_at,
                            .output = without_logprobs(end.output),
                            .usage = end.usage,
                            .error = end.error};
  turn.output = to_stored(shorter.output);
  turn.response.json = dump_json(response_json(record->head(), end));
  if (turn.response.json.size() > response_bytes_max)
    turn.response.json = dump_json(response_json(record->head(), shorter));
  if (end.status != "completed" && end.status != "incomplete") return turn;
  turn.input = input;
  turn.response.tokens = std::move(tokens);
  turn.response.tokenizer = tokenizer;
  return turn;
}

// --- the way to it ---

std::variant<ResponseRequest, ApiError> parse_response(std::string_view body, bool can_store,
                                                       const RequestDefaults& defaults,
                                                       ResponsePurpose purpose) {
  const Result<Json> request = parse_json(body);
  if (!request.ok()) return api_error(request.status());
  Result<ResponseRequest> parsed = parse_response_request(*request, can_store, defaults, purpose);
  if (!parsed.ok()) return api_error(parsed.status());
  return std::move(*parsed);
}

std::variant<ResponseHistory, ApiError> load_history(ConversationStore& store, std::string_view tenant,
                                                     const ResponseRequest& request, std::uint64_t bytes_max,
                                                     const std::optional<std::string>& made) {
  if (!request.previous_response_id.empty())
    return load_previous(store, tenant, request.previous_response_id, bytes_max);
  if (!request.conversation.empty())
    return load_conversation(store, tenant, request.conversation, bytes_max, made);
  return ResponseHistory{};
}

std::variant<PreparedResponse, ApiError> prepare_response(ResponseRequest request, ResponseHistory history,
                                                          const ServedModel& served, TokenHistory& tokens,
                                                          std::string_view tenant, ConversationStore* store,
                                                          std::int64_t claim, ResponseHead head) {
  if (std::optional<ApiError> error = join_history(request, history, served, tokens, tenant))
    return *std::move(error);
  assign_ids(request.input);
  const ContextOverflow overflow = overflow_of(request, served);
  request.echo["truncation"] = overflow == ContextOverflow::kTruncate ? "auto" : "disabled";
  Prepared prepared = prepare_chat(chat_request(request, history), "input", served, tokens, tenant, overflow);
  if (auto* error = std::get_if<ApiError>(&prepared)) return std::move(*error);

  auto turn = std::make_shared<ResponseTurn>();
  head.model = served.model->id;
  head.conversation = request.conversation;
  head.echo = std::move(request.echo);
  head.logprobs = request.logprobs;
  turn->record = std::make_shared<ResponseRecord>(std::move(head));
  turn->input = to_stored(request.input);
  turn->previous = request.previous_response_id;
  turn->claim = claim;
  turn->tokenizer = tokenizer_name(served);
  PreparedResponse out{.turn = turn, .generation = std::get<PreparedGeneration>(std::move(prepared))};
  if (!request.store) return out;
  if (Status status = check_stored(tenant, *turn); !status.ok()) return api_error(status);
  out.generation.commit = [store, owner = std::string(tenant), turn = out.turn, field = kept_in(request),
                           prompt = out.generation.prompts.front()](
                              const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
    std::vector<TokenId> sequence = prompt;
    sequence.insert(sequence.end(), choices.front().tokens.begin(), choices.front().tokens.end());
    const StoredTurn ended = turn->ended(turn->record->finish(choices.front(), usage), std::move(sequence));
    const Status status = named_quota_error(store->commit_turn(owner, ended), field);
    if (status.ok()) turn->record->stored();
    return status;
  };
  return out;
}

std::variant<std::string, ApiError> count_input_tokens(ResponseRequest request,
                                                       const ResponseHistory& history,
                                                       const ServedModel& served, TokenHistory& tokens,
                                                       std::string_view tenant) {
  if (std::optional<ApiError> error = check_model(request.fields.model, served)) return *std::move(error);
  if (std::optional<ApiError> error = join_history(request, history, served, tokens, tenant))
    return *std::move(error);
  const ContextOverflow overflow = overflow_of(request, served);
  ChatRequest chat = chat_request(request, history);
  std::size_t count = 0;
  if (overflow == ContextOverflow::kTruncate) {
    const Prepared prepared = prepare_chat(std::move(chat), "input", served, tokens, tenant, overflow);
    if (const auto* error = std::get_if<ApiError>(&prepared)) return *error;
    count = kept_tokens(std::get<PreparedGeneration>(prepared));
  } else {
    const Result<EncodedConversation> prompt =
        encode_conversation(std::move(chat.conversation), "input", served, tokens, tenant);
    if (!prompt.ok()) return api_error(prompt.status());
    count = prompt->tokens.size();
  }
  return dump_json({{"object", "response.input_tokens"}, {"input_tokens", count}});
}

}  // namespace loci
