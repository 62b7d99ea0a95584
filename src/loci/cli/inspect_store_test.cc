// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "loci/base/folder_testing.h"
#include "loci/serve/store/sqlite_store.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

class InspectStore : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.now_seconds = [] { return 86'400; };
    store_ = SqliteStore::open(path_, options).value();
    ASSERT_TRUE(store_->create_conversation("ann", {.id = "conv_1"}, {test_item("msg_1", "h\u009bi")}).ok());
    StoredTurn turn = test_turn("resp_1");
    ASSERT_TRUE(store_->commit_turn("bob", turn).ok());
    turn = test_turn("resp_2");
    turn.response.previous = "resp_1";
    ASSERT_TRUE(store_->commit_turn("bob", turn).ok());
  }

  TestFolder folder_;
  std::string path_ = folder_.file("store.db");
  std::unique_ptr<ConversationStore> store_;
};

TEST_F(InspectStore, TellsWhatIsInIt) {
  EXPECT_TRUE(is_store_file(path_));
  // A server uses the file at the same time.
  const auto report = inspect_store(path_);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const char* part :
       {"schema version       7 (this Loci's: 7)", "integrity            ok",
        "  ann                              1          0          1", "1970-01-02 00:00"}) {
    EXPECT_NE(report->find(part), std::string::npos) << part << "\nis not in\n" << *report;
  }
}

TEST_F(InspectStore, PrintsItems) {
  EXPECT_EQ(inspect_conversation(path_, "conv_1").value(),
            "conv_1 of ann: 1 items\n{\"id\":\"msg_1\",\"text\":\"h?i\"}\n");
  const std::string chain = inspect_conversation(path_, "resp_2").value();
  EXPECT_EQ(chain.substr(0, chain.find('\n')), "resp_2 of bob: 4 items");
  EXPECT_EQ(inspect_conversation(path_, "conv_9").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(store_->delete_response("bob", "resp_1").ok());
  EXPECT_EQ(inspect_conversation(path_, "resp_2").status().message(),
            "the response 'resp_1', which 'resp_2' continues, was deleted or has expired");
}

TEST_F(InspectStore, TellsWhatOfADamagedFileCanBeRead) {
  store_.reset();
  const auto pages = static_cast<std::size_t>(std::filesystem::file_size(path_) / 4'096);
  std::string whole(pages * 4'096, ' ');
  std::ifstream(path_, std::ios::binary).read(whole.data(), static_cast<std::streamsize>(whole.size()));
  int reports = 0;
  for (std::size_t page = 1; page < pages; ++page) {
    std::string damaged = whole;
    damaged.replace(page * 4'096, 4'096, 4'096, '\xaa');
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << damaged;
    const auto report = inspect_store(path_);
    if (!report.ok()) continue;
    EXPECT_NE(report->find("integrity"), std::string::npos) << *report;
    EXPECT_EQ(report->find("integrity            ok"), std::string::npos) << page << ": " << *report;
    ++reports;
  }
  EXPECT_GT(reports, static_cast<int>(pages) / 2);
}

TEST_F(InspectStore, RefusesOtherFiles) {
  std::ofstream(folder_.file("text")) << "SQLite is not in here";
  EXPECT_FALSE(is_store_file(folder_.file("text")));
  EXPECT_FALSE(is_store_file(folder_.file("nothing")));
  EXPECT_EQ(inspect_store(folder_.file("nothing")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace loci
