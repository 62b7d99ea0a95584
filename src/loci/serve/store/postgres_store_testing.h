// SPDX-License-Identifier: Apache-2.0
// A fixture for tests of what PostgreSQL alone can do as a store: each test has a new database of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <utility>

#include "loci/serve/store/postgres_store.h"
#include "loci/serve/store/postgres_testing.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {

class PostgresStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = TestPostgres::shared();
    if (server_ == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    url_ = server_->new_database();
  }
  std::unique_ptr<ConversationStore> open(const StoreOptions& options = {}) {
    auto store = PostgresStore::open(url_, options);
    // (On a busy machine the first answers may outlast a short limit.)
    for (int i = 0; i < 20 && store.status().code() == StatusCode::kUnavailable; ++i)
      store = PostgresStore::open(url_, options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(store).value() : nullptr;
  }
  std::string sql(const std::string& statement) { return TestPostgres::run(url_, statement); }

  TestPostgres* server_ = nullptr;
  std::string url_;
};

}  // namespace loci
