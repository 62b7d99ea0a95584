#include "loci/serve/store/test_stores.h"

#include <fmt/format.h>

#include "loci/model/test_folder.h"
#include "loci/serve/store/sqlite_store.h"

namespace loci {
namespace {

class SqlitePlace final : public StorePlace {
 public:
  Result<std::unique_ptr<ConversationStore>> open(const StoreOptions& options) override {
    return SqliteStore::open(folder_.file("store.db"), options);
  }

 private:
  TestFolder folder_;
};

}  // namespace

std::unique_ptr<StorePlace> make_store_place(StoreKind) { return std::make_unique<SqlitePlace>(); }

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
