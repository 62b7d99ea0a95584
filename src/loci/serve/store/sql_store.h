// SPDX-License-Identifier: Apache-2.0
// The conversation store over a database that speaks SQL; what SqliteStore and PostgresStore have in
// common. The tables are in schema.cc.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/expiry_clock.h"
#include "loci/serve/store/sql_database.h"
#include "loci/serve/store/sql_eraser.h"
#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/store_options.h"

namespace loci {

class SqlStore : public ConversationStore {
 public:
  // The schema of `database` is the newest.
  SqlStore(std::unique_ptr<SqlDatabase> database, StoreOptions options);
  ~SqlStore() override;

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
  Result<std::optional<std::int64_t>> claim_turn(std::string_view tenant,
                                                 std::string_view conversation) override;
  Status release_turn(std::string_view tenant, std::string_view conversation, std::int64_t claim) override;
  Status renew_claims(const std::vector<std::int64_t>& held) override;
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

  std::string server() const override;
  Result<std::uint64_t> fail_interrupted(const std::vector<std::string>& ended,
                                         const ConfirmEnded& confirm) override;
  Result<std::uint64_t> recount_usage() override;
  void abandon() override {
    eraser_.stop();
    database_->abandon();
  }
  Result<ExpiryTime> expiry_time(std::int64_t age_seconds_max) override;
  Result<StoreExpiry> expire(std::int64_t now_seconds, const StoreLimits& limits) override;
  Result<std::uint64_t> size_bytes() override;
  Result<std::vector<TenantStats>> stats() override;

 protected:
  SqlDatabase& database() { return *database_; }

 private:
  // A transaction that writes to one of the tenant's threads; then what the tenant's quota has no room for
  // goes (StoreOptions::quota_of). `bytes`: about what it writes.
  using WriteThread = std::function<Result<store_rows::WrittenThread>(SqlSession&)>;
  Status write(std::string_view tenant, std::uint64_t bytes, const WriteThread& body);
  // A transaction that reads what the tenant has.
  Status read(std::string_view tenant, const SqlDatabase::Body& body) {
    return database_->transact(SqlAccess::kRead, {.tenant = tenant}, body);
  }
  void erase_deleted();
  // When something that is written now was active.
  Result<std::int64_t> now_seconds(SqlSession& session) const {
    return options_.now_seconds ? options_.now_seconds() : session.now_seconds();
  }
  StoreQuota quota_of(std::string_view tenant) const {
    return options_.quota_of ? options_.quota_of(tenant) : StoreQuota();
  }
  Result<std::uint64_t> expire_batch(SqlSession& session, std::int64_t now, const StoreLimits& limits) const;

  std::unique_ptr<SqlDatabase> database_;
  StoreOptions options_;
  SqlEraser eraser_{*database_};
  std::atomic<std::int64_t> claims_{0};  // given so far: the number of the latest
  const SystemClock uptime_;
  Mutex expiry_mutex_;
  ExpiryClock expiry_clock_ GUARDED_BY(expiry_mutex_);
};

}  // namespace loci
