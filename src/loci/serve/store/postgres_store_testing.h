// SPDX-License-Identifier: Apache-2.0
// A store in a new database of the tests' PostgreSQL server, for the tests of what only that store has.
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
  // Runs the statement and returns the first column of its first row.
  std::string sql(const std::string& statement) {
    pqxx::connection connection(url_);
    const pqxx::result found = pqxx::nontransaction(connection).exec(statement);
    return found.empty() ? std::string() : found[0][0].c_str();
  }

  TestPostgres* server_ = nullptr;
  std::string url_;
};

}  // namespace loci
