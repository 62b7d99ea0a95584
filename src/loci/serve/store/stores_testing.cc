// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/stores_testing.h"

#include <fmt/format.h>

#include "loci/base/folder_testing.h"
#include "loci/serve/store/fault_vfs_testing.h"
#include "loci/serve/store/open_store.h"
#include "loci/serve/store/postgres_testing.h"

namespace loci {
namespace {

class SqlitePlace final : public StorePlace {
 public:
  Result<std::unique_ptr<ConversationStore>> open(const StoreOptions& options) override {
    return open_store(folder_.file("store.db"), options);
  }

 private:
  TestFolder folder_;
};

class MemoryPlace final : public StorePlace {
 public:
  Result<std::unique_ptr<ConversationStore>> open(const StoreOptions& options) override {
    StoreOptions changed = options;
    changed.sqlite_vfs = disk_.vfs_name();
    return open_store("store.db", changed);
  }

 private:
  FaultDisk disk_{1};
};

class PostgresPlace final : public StorePlace {
 public:
  explicit PostgresPlace(std::string url) : url_(std::move(url)) {}
  Result<std::unique_ptr<ConversationStore>> open(const StoreOptions& options) override {
    return open_store(url_, options);
  }

 private:
  std::string url_;
};

}  // namespace

std::unique_ptr<StorePlace> make_store_place(StoreKind kind) {
  if (kind == StoreKind::kSqlite) return std::make_unique<SqlitePlace>();
  if (kind == StoreKind::kSqliteInMemory) return std::make_unique<MemoryPlace>();
  TestPostgres* server = TestPostgres::shared();
  if (server == nullptr) return nullptr;
  return std::make_unique<PostgresPlace>(server->new_database());
}

StoredItem test_item(const std::string& id, const std::string& text) {
  return {.id = id, .json = fmt::format(R"({{"id":"{}","text":"{}"}})", id, text)};
}

StoredTurn test_turn(const std::string& id) {
  StoredTurn turn;
  turn.response = {.id = id,
                   .conversation = "",
                   .previous = "",
                   .created_at = 1'000,
                   .status = "completed",
                   .json = fmt::format(R"({{"id":"{}","status":"completed"}})", id),
                   .tokens = {TokenId(1), TokenId(70'000), TokenId(3)},
                   .tokenizer = "abcd"};
  turn.input = {test_item(id + "_in")};
  turn.output = {test_item(id + "_out")};
  return turn;
}

}  // namespace loci
