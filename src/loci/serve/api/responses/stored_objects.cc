// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/stored_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "loci/base/clock.h"
#include "loci/serve/api/responses/ids.h"
#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

// A list of items is put together as text: they are stored as JSON.
std::string list_json(const std::vector<StoredItem>& items, bool has_more) {
  std::string out = R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    out += items[i].json;
  }
  const auto id = [&](const StoredItem& item) { return dump_json(Json(item.id)); };
  out += fmt::format(R"(],"first_id":{},"last_id":{},"has_more":{}}})",
                     items.empty() ? "null" : id(items.front()), items.empty() ? "null" : id(items.back()),
                     has_more);
  return out;
}

Json conversation_json(const StoredConversation& conversation) {
  Json metadata = json_or_null(conversation.metadata);
  if (!metadata.is_object()) metadata = Json::object();
  return {{"id", conversation.id},
          {"object", "conversation"},
          {"created_at", conversation.created_at},
          {"metadata", std::move(metadata)}};
}

std::string deleted_json(std::string_view id, std::string_view object) {
  return dump_json({{"id", id}, {"object", object}, {"deleted", true}});
}

Result<Json> parse_body(std::string_view body) {
  if (body.empty()) return Json::object();
  return parse_json(body);
}

Result<std::vector<Item>> read_new_items(const Json& value) {
  LOCI_ASSIGN_OR_RETURN(std::vector<Item> items, parse_items(value, "items"));
  if (items.size() > kItemsAddedMax) {
    return invalid_argument(fmt::format("expected at most {} items; got {}", kItemsAddedMax, items.size()),
                            "items");
  }
  std::set<std::string> ids;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string id = items[i].at("id").get<std::string>();
    if (items[i].at("type") == "item_reference") {
      return unimplemented("expected an item itself: references are not taken here",
                           fmt::format("items[{}].type", i));
    }
    if (!id.empty() && !ids.insert(id).second) {
      return invalid_argument(fmt::format("expected ids that differ; got '{}' twice", utf8_prefix(id, 100)),
                              fmt::format("items[{}].id", i));
    }
  }
  assign_ids(items);
  return items;
}

// The text of an item's content; empty where it has none.
std::string text_of(const Json& item) {
  const auto content = item.find("content");
  if (content == item.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return {};
  for (const Json& part : *content) {
    if (part.is_object() && part.contains("text") && part["text"].is_string()) return part["text"];
  }
  return {};
}

}  // namespace

std::string title_of(const ConversationSummary& summary) {
  const Json metadata = json_or_null(summary.conversation.metadata);
  if (metadata.is_object() && metadata.contains("title") && metadata["title"].is_string())
    return metadata["title"];
  for (const StoredItem& stored : summary.first) {
    const Json item = json_or_null(stored.json);
    if (!item.is_object() || item.value("role", Json()) != "user") continue;
    const std::string text = text_of(item);
    const std::string line = text.substr(0, text.find('\n'));
    return line.size() <= kTitleBytesMax ? line : std::string(utf8_prefix(line, kTitleBytesMax)) + "…";
  }
  return {};
}

ApiError no_such(std::string_view kind, std::string_view id) {
  return http_error(404, fmt::format("there is no {} '{}'", kind, utf8_prefix(id, 100)), "not_found");
}

Status named_quota_error(const Status& status, std::string_view field) {
  if (status.code() != StatusCode::kInvalidArgument || !status.field().empty()) return status;
  return invalid_argument(status.message(), std::string(field));
}

ApiError store_error(const Status& status, std::string_view kind, std::string_view id) {
  if (status.code() == StatusCode::kResourceExhausted) return too_many_answers();
  return status.code() == StatusCode::kNotFound ? no_such(kind, id) : store_error(status);
}

ApiError conversation_locked(std::string_view field, std::string_view message) {
  const std::string prefix = field.empty() ? std::string() : fmt::format("{}: ", field);
  ApiError busy = http_error(409, prefix + std::string(message), "conversation_locked");
  busy.param = field;
  return busy;
}

ApiError no_store_error(std::string_view field) {
  const std::string prefix = field.empty() ? std::string() : fmt::format("{}: ", field);
  ApiError error = http_error(400,
                              prefix +
                                  "this server keeps no responses and no conversations: it runs without "
                                  "a store (option store)",
                              "store_disabled");
  error.param = field;
  return error;
}

// --- responses ---

namespace {

// `message`: why another server must be asked. Only what is made in the background is stored before it has
// ended.
ApiError runs_elsewhere(const ConversationStore& store, ResponseState state, std::string message) {
  const bool is_own = state.server == store.server();
  if (is_own)
    message = "the response has ended on this server, but its end could not be stored; it can be deleted";
  else if (state.is_interrupted)
    message =
        "the server that made this response seems to have ended: if it has, the response is failed within "
        "some seconds";
  ApiError error = http_error(409, std::move(message), "response_running");
  if (!is_own) error.owner = std::move(state.server);
  return error;
}

bool is_running(std::string_view status) { return status == "queued" || status == "in_progress"; }

ApiError cannot_cancel(std::string_view status) {
  return http_error(400,
                    fmt::format("the response can't be cancelled: it is {}, and only a response that was "
                                "made with background true can be, until it has ended",
                                status),
                    "invalid_value");
}

}  // namespace

ApiError cannot_stream(ConversationStore& store, std::string_view tenant, std::string_view id) {
  Result<ResponseState> state = store.response_state(tenant, id);
  if (!state.ok()) return store_error(state.status(), "response", id);
  if (is_running(state->status)) {
    return runs_elsewhere(store, *std::move(state),
                          "the response runs on another server, which alone has its events: stream it there, "
                          "or leave stream out to see how far it is");
  }
  ApiError error =
      api_error(invalid_argument("only a response that was made with background true, not long ago, and by a "
                                 "server that still runs, can be streamed again; leave it out to get the "
                                 "whole response",
                                 "stream"));
  if (state->server != store.server()) error.owner = std::move(state->server);
  return error;
}

Answer show_response(ConversationStore& store, std::string_view tenant, std::string_view id,
                     const ReadRoom& room) {
  Result<std::string> json = store.response_json(tenant, id, room);
  if (!json.ok()) return store_error(json.status(), "response", id);
  return *std::move(json);
}

std::optional<ApiError> deleted_elsewhere(ConversationStore& store, std::string_view tenant,
                                          std::string_view id) {
  Result<ResponseState> state = store.response_state(tenant, id);
  if (!state.ok() || !is_running(state->status) || state->server == store.server()) return std::nullopt;
  return runs_elsewhere(store, *std::move(state), "the response runs on another server: delete it there");
}

Answer delete_response(ConversationStore& store, std::string_view tenant, std::string_view id) {
  const Status status = store.delete_response(tenant, id);
  if (status.code() == StatusCode::kInvalidArgument) {
    Result<ResponseState> state = store.response_state(tenant, id);
    return runs_elsewhere(store, state.ok() ? *std::move(state) : ResponseState(),
                          std::string(status.message()));
  }
  if (!status.ok()) return store_error(status, "response", id);
  return deleted_json(id, "response");
}

Answer list_input_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                        const ItemPage& page) {
  const Result<ItemList> list = store.input_items(tenant, id, page);
  if (!list.ok()) return store_error(list.status(), "response", id);
  return list_json(list.value().items, list.value().has_more);
}

Answer cancel_ended_response(ConversationStore& store, std::string_view tenant, std::string_view id,
                             const ReadRoom& room) {
  Result<ResponseState> state = store.response_state(tenant, id);
  if (!state.ok()) return store_error(state.status(), "response", id);
  if (is_running(state->status))
    return runs_elsewhere(store, *std::move(state), "the response runs on another server: cancel it there");
  if (state->status != "cancelled") return cannot_cancel(state->status);
  return show_response(store, tenant, id, room);
}

Answer cancel_ended_response(StoredResponse response) {
  if (response.status != "cancelled") return cannot_cancel(response.status);
  return std::move(response.json);
}

// --- conversations ---

Result<NewConversation> parse_conversation(std::string_view body) {
  LOCI_ASSIGN_OR_RETURN(const Json request, parse_body(body));
  NewConversation out;
  LOCI_ASSIGN_OR_RETURN(out.metadata, read_metadata(request));
  if (const Json* items = FieldReader(request).find("items")) {
    LOCI_ASSIGN_OR_RETURN(out.items, read_new_items(*items));
  }
  return out;
}

Result<std::vector<Item>> parse_added_items(std::string_view body) {
  LOCI_ASSIGN_OR_RETURN(const Json request, parse_body(body));
  FieldReader reader(request);
  const Json* items = reader.find("items");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (items == nullptr) return invalid_argument("is required", "items");
  LOCI_ASSIGN_OR_RETURN(std::vector<Item> added, read_new_items(*items));
  if (added.empty()) return invalid_argument("expected at least one item; got none", "items");
  return added;
}

Result<Json> parse_metadata_update(std::string_view body) {
  LOCI_ASSIGN_OR_RETURN(const Json request, parse_body(body));
  if (request.is_object() && !request.contains("metadata"))
    return invalid_argument("is required", "metadata");
  return read_metadata(request);
}

Answer create_conversation(ConversationStore& store, std::string_view tenant,
                           const NewConversation& conversation) {
  const StoredConversation stored{.id = random_id("conv_"),
                                  .created_at = seconds_since_1970(),
                                  .metadata = dump_json(conversation.metadata)};
  const Status status =
      named_quota_error(store.create_conversation(tenant, stored, to_stored(conversation.items)), "items");
  if (!status.ok()) return store_error(status);
  return dump_json(conversation_json(stored));
}

Answer list_conversations(ConversationStore& store, std::string_view tenant, const ItemPage& page) {
  const Result<ConversationList> list = store.conversations(tenant, page.after, page.limit);
  if (!list.ok()) return store_error(list.status());
  Json data = Json::array();
  for (const ConversationSummary& one : list->conversations) {
    Json object = conversation_json(one.conversation);
    object["title"] = title_of(one);
    object["last_active_at"] = one.active_at;
    object["items"] = one.items;
    object["size_bytes"] = one.size_bytes;
    data.push_back(std::move(object));
  }
  const auto id = [&](const ConversationSummary& one) { return Json(one.conversation.id); };
  const bool empty = list->conversations.empty();
  return dump_json({{"object", "list"},
                    {"data", std::move(data)},
                    {"first_id", empty ? Json() : id(list->conversations.front())},
                    {"last_id", empty ? Json() : id(list->conversations.back())},
                    {"has_more", list->has_more}});
}

Answer show_conversation(ConversationStore& store, std::string_view tenant, std::string_view id) {
  const Result<StoredConversation> conversation = store.conversation(tenant, id);
  if (!conversation.ok()) return store_error(conversation.status(), "conversation", id);
  return dump_json(conversation_json(conversation.value()));
}

Answer update_conversation(ConversationStore& store, std::string_view tenant, std::string_view id,
                           const Json& metadata) {
  const Status status = store.set_metadata(tenant, id, dump_json(metadata));
  if (!status.ok()) return store_error(status, "conversation", id);
  return show_conversation(store, tenant, id);
}

void SaidToForget::forget() {
  for (StoredTokens& one : std::exchange(said_, {})) forget_(std::move(one));
}

Answer delete_conversation(ConversationStore& store, std::string_view tenant, std::string_view id,
                           SaidToForget& said) {
  Result<std::vector<StoredTokens>> deleted = store.delete_conversation(tenant, id);
  if (!deleted.ok()) return store_error(deleted.status(), "conversation", id);
  said.take(std::move(*deleted));
  return deleted_json(id, "conversation.deleted");
}

Answer add_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                 const std::vector<Item>& items) {
  const std::vector<StoredItem> stored = to_stored(items);
  const Status status = named_quota_error(store.add_items(tenant, id, stored), "items");
  if (!status.ok()) return store_error(status, "conversation", id);
  return list_json(stored, false);
}

Answer list_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                  const ItemPage& page) {
  const Result<ItemList> list = store.conversation_items(tenant, id, page);
  if (!list.ok()) return store_error(list.status(), "conversation", id);
  return list_json(list.value().items, list.value().has_more);
}

Answer show_item(ConversationStore& store, std::string_view tenant, std::string_view id,
                 std::string_view item, const ReadRoom& room) {
  Result<StoredItem> stored = store.conversation_item(tenant, id, item, room);
  if (!stored.ok()) return store_error(stored.status(), "item", item);
  return std::move(stored->json);
}

Answer delete_item(ConversationStore& store, std::string_view tenant, std::string_view id,
                   std::string_view item) {
  const Status status = store.delete_item(tenant, id, item);
  if (!status.ok()) return store_error(status, "item", item);
  return show_conversation(store, tenant, id);
}

}  // namespace loci
