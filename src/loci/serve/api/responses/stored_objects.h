// SPDX-License-Identifier: Apache-2.0
// Answers of the endpoints of stored responses and conversations: results of the store's calls, as JSON. No
// networking. Functions that take a store are called on the store's threads.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "loci/serve/api/responses/items.h"
#include "loci/serve/api/responses/query.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/json.h"

namespace loci {

// A body, or an error. The error for another tenant's object is the same as for an object that never existed.
using Answer = std::variant<std::string, ApiError>;

inline constexpr std::size_t kItemsAddedMax = 20;  // by one request, as OpenAI's

inline constexpr std::size_t kTitleBytesMax = 80;

// The "title" in its metadata, else the beginning of its first user message; empty: it has neither.
std::string title_of(const ConversationSummary& summary);

// Of what takes more than its tenant may store. The store does not know the request, so its error names no
// field: `field` is the request's that would have to be another.
Status named_quota_error(const Status& status, std::string_view field);
// 404: "there is no {kind} 'id'".
ApiError no_such(std::string_view kind, std::string_view id);
// The error of a store's call about one object: kNotFound is said of that object, kResourceExhausted of its
// ReadRoom.
ApiError store_error(const Status& status, std::string_view kind, std::string_view id);
// 409: a turn of the conversation is being made. `field` may be empty.
ApiError conversation_locked(std::string_view field, std::string_view message);
// 400: the request, or what its `field` names, needs a store, and the server has none.
ApiError no_store_error(std::string_view field = {});

// --- responses ---

// `room`, here and below: for what is read; empty: it has no bound.
Answer show_response(ConversationStore& store, std::string_view tenant, std::string_view id,
                     const ReadRoom& room = {});
// Why the events of a response can't be streamed: it is not made here, nor was it lately. ApiError::owner:
// the server that may have them, another one.
ApiError cannot_stream(ConversationStore& store, std::string_view tenant, std::string_view id);
// The refusal of a deletion that another server makes, as that one makes the response; absent: it is this
// one's.
std::optional<ApiError> deleted_elsewhere(ConversationStore& store, std::string_view tenant,
                                          std::string_view id);
// Of a response that another server makes: 409, with ApiError::owner.
Answer delete_response(ConversationStore& store, std::string_view tenant, std::string_view id);
Answer list_input_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                        const ItemPage& page);
// For a response that is not being made here: shows it if it was cancelled before, and refuses the call
// otherwise; of one that another server makes with ApiError::owner.
Answer cancel_ended_response(StoredResponse response);
Answer cancel_ended_response(ConversationStore& store, std::string_view tenant, std::string_view id,
                             const ReadRoom& room = {});

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
// The tenant's conversations, the last active first. Of `page` only `after` and `limit` are used.
Answer list_conversations(ConversationStore& store, std::string_view tenant, const ItemPage& page);
Answer show_conversation(ConversationStore& store, std::string_view tenant, std::string_view id);
Answer update_conversation(ConversationStore& store, std::string_view tenant, std::string_view id,
                           const Json& metadata);
// What was said in a deleted conversation, until it is forgotten. That takes as long as all of it is to hash
// (4M tokens: 60 ms), so a thread of the store's only takes it, and another forgets it: at the latest the one
// that ends this, which may be the server's stop.
class SaidToForget {
 public:
  using Forget = std::function<void(StoredTokens&& said)>;
  // What `forget` uses must outlive this.
  explicit SaidToForget(Forget forget) : forget_(std::move(forget)) {}
  ~SaidToForget() { forget(); }
  SaidToForget(const SaidToForget&) = delete;
  SaidToForget& operator=(const SaidToForget&) = delete;

  // No two of these at once.
  void take(std::vector<StoredTokens> said) { said_ = std::move(said); }
  void forget();

 private:
  Forget forget_;
  std::vector<StoredTokens> said_;
};

// Gives `said` the tokens of what was said, once the conversation is deleted.
Answer delete_conversation(ConversationStore& store, std::string_view tenant, std::string_view id,
                           SaidToForget& said);
Answer add_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                 const std::vector<Item>& items);
Answer list_items(ConversationStore& store, std::string_view tenant, std::string_view id,
                  const ItemPage& page);
Answer show_item(ConversationStore& store, std::string_view tenant, std::string_view id,
                 std::string_view item, const ReadRoom& room = {});
// Answers with the conversation, as OpenAI does.
Answer delete_item(ConversationStore& store, std::string_view tenant, std::string_view id,
                   std::string_view item);

}  // namespace loci
