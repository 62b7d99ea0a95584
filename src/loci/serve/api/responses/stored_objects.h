// SPDX-License-Identifier: Apache-2.0
// What the endpoints of stored responses and conversations answer: the store's calls, as JSON. No networking
// here; what takes a store runs on a thread of the store's.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/serve/api/responses/items.h"
#include "loci/serve/api/responses/query.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/json.h"

namespace loci {

// A body, or an error. What belongs to another tenant is not found, in the same words as what never was.
using Answer = std::variant<std::string, ApiError>;

inline constexpr std::size_t kItemsAddedMax = 20;  // by one request, as OpenAI's

inline constexpr std::size_t kTitleBytesMax = 80;

// Its metadata's "title", else the beginning of what its user said first; empty: neither.
std::string title_of(const ConversationSummary& summary);

// 404: "there is no {kind} 'id'".
ApiError no_such(std::string_view kind, std::string_view id);
// The error of a store's call about one thing: what it does not find is that thing.
ApiError store_error(const Status& status, std::string_view kind, std::string_view id);
// 409: a turn of the conversation is being made. `field` may be empty.
ApiError conversation_locked(std::string_view field, std::string_view message);
// What needs the store of a server that has none.
ApiError no_store_error();

// --- responses ---

Answer show_response(ConversationStore& store, std::string_view tenant, std::string_view id);
Answer delete_response(ConversationStore& store, std::string_view tenant, std::string_view id);
Answer list_input_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                        const ItemPage& page);
// Of a response that does not run: what was cancelled already is shown, the rest is refused.
Answer cancel_ended_response(ConversationStore& store, std::string_view tenant, std::string_view id);

// --- conversations ---

struct NewConversation {
  Json metadata;
  std::vector<Item> items;  // with ids
};
// {"items", "metadata"}, both optional; an empty body is an empty object.
Result<NewConversation> parse_conversation(std::string_view body);
// {"items"}
Result<std::vector<Item>> parse_added_items(std::string_view body);
// {"metadata"}
Result<Json> parse_metadata_update(std::string_view body);

Answer create_conversation(ConversationStore& store, std::string_view tenant,
                           const NewConversation& conversation);
// The tenant's, the last active first; `page.after` and `page.limit` count.
Answer list_conversations(ConversationStore& store, std::string_view tenant, const ItemPage& page);
Answer show_conversation(ConversationStore& store, std::string_view tenant, std::string_view id);
Answer update_conversation(ConversationStore& store, std::string_view tenant, std::string_view id,
                           const Json& metadata);
// `forget` is told what was said there, once it is gone.
using ForgetSaid = std::function<void(const std::vector<StoredTokens>& said)>;
Answer delete_conversation(ConversationStore& store, std::string_view tenant, std::string_view id,
                           const ForgetSaid& forget);
Answer add_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                 const std::vector<Item>& items);
Answer list_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                  const ItemPage& page);
Answer show_item(ConversationStore& store, std::string_view tenant, std::string_view id,
                 std::string_view item);
// Answers with the conversation, as OpenAI does.
Answer delete_item(ConversationStore& store, std::string_view tenant, std::string_view id,
                   std::string_view item);

}  // namespace loci
