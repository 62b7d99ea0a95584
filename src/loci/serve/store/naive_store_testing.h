// SPDX-License-Identifier: Apache-2.0
// The store's contract, as plainly as it can be written: what tests compare the real ones with. Keeps
// everything in memory, in the order in which it came.
#pragma once

#include <string>
#include <vector>

#include "loci/serve/store/conversation_store.h"

namespace loci {

// Not thread-safe. size_bytes() and stats().size_bytes are 0; ids and texts are not checked.
class NaiveStore : public ConversationStore {
 public:
  std::int64_t now = 0;  // what it takes for the time

  Status create_conversation(std::string_view tenant, const StoredConversation& conversation,
                             const std::vector<StoredItem>& items) override;
  Result<StoredConversation> conversation(std::string_view tenant, std::string_view id) override;
  Result<ConversationList> conversations(std::string_view tenant, std::string_view after,
                                         std::uint32_t limit) override;
  Status set_metadata(std::string_view tenant, std::string_view id, std::string_view metadata) override;
  Result<std::vector<StoredTokens>> delete_conversation(std::string_view tenant,
                                                        std::string_view id) override;
  Status add_items(std::string_view tenant, std::string_view conversation,
                   const std::vector<StoredItem>& items) override;
  Result<ItemList> conversation_items(std::string_view tenant, std::string_view conversation,
                                      const ItemPage& page) override;
  Result<StoredItem> conversation_item(std::string_view tenant, std::string_view conversation,
                                       std::string_view item, const ReadRoom& room) override;
  Status delete_item(std::string_view tenant, std::string_view conversation, std::string_view item) override;
  Status commit_turn(std::string_view tenant, const StoredTurn& turn) override;
  Result<StoredResponse> response(std::string_view tenant, std::string_view id) override;
  Result<std::string> response_json(std::string_view tenant, std::string_view id,
                                    const ReadRoom& room) override;
  Result<ResponseState> response_state(std::string_view tenant, std::string_view id) override;
  Result<StoredResponse> continued_response(std::string_view tenant, std::string_view id) override;
  Status delete_response(std::string_view tenant, std::string_view id) override;
  Result<ItemList> input_items(std::string_view tenant, std::string_view response,
                               const ItemPage& page) override;
  Result<std::vector<StoredItem>> response_history(std::string_view tenant, std::string_view id,
                                                   std::uint64_t bytes_max) override;
  Result<std::vector<StoredItem>> conversation_history(std::string_view tenant, std::string_view id,
                                                       std::uint64_t bytes_max) override;
  Result<std::optional<std::int64_t>> claim_turn(std::string_view, std::string_view) override {
    return std::optional<std::int64_t>(0);  // it is one server's
  }
  Status release_turn(std::string_view, std::string_view, std::int64_t) override { return {}; }
  Status renew_claims(const std::vector<std::int64_t>&) override { return {}; }
  std::string server() const override { return {}; }
  Result<std::uint64_t> fail_interrupted(const std::vector<std::string>& ended,
                                         const ConfirmEnded& confirm) override;
  Result<std::uint64_t> recount_usage() override { return std::uint64_t{0}; }  // it counts nothing
  void abandon() override {}
  Result<ExpiryTime> expiry_time(std::int64_t) override { return ExpiryTime{.now_seconds = now}; }
  Result<StoreExpiry> expire(std::int64_t now_seconds, const StoreLimits& limits) override;
  Result<std::uint64_t> size_bytes() override { return std::uint64_t{0}; }
  Result<std::vector<TenantStats>> stats() override;

 private:
  struct Conversation {
    std::string tenant;
    int thread;
    StoredConversation stored;
    std::vector<StoredItem> items;
    std::vector<std::string> items_of;  // the response that added each, by its id
  };
  struct Response {
    std::string tenant;
    int thread;
    StoredTurn turn;
    bool joins_conversation;
    std::uint64_t serial;     // of this one; 0: of none
    std::uint64_t continues;  // the previous one's
  };

  static bool is_running(const Response& response);
  Conversation* find_conversation(std::string_view tenant, std::string_view id);
  Response* find_response(std::string_view tenant, std::string_view id);
  void touch(int thread);

  std::vector<Conversation> conversations_;
  std::vector<Response> responses_;
  std::uint64_t serial_ = 0;
  std::vector<std::int64_t> active_at_;  // of each thread ever made
};

}  // namespace loci
