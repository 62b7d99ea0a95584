// SPDX-License-Identifier: Apache-2.0
// One connection to a SQLite file, and the statements that are prepared on it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"
#include "loci/serve/store/store_options.h"

struct sqlite3;
struct sqlite3_stmt;

namespace loci {

// One thread at a time.
class SqliteConnection final : public SqlSession {
 public:
  // `flags`: SQLite's, of sqlite3_open_v2().
  static Result<std::unique_ptr<SqliteConnection>> open(const std::string& path, int flags,
                                                        const StoreOptions& options);
  ~SqliteConnection() override;

  Result<SqlRows> run(std::string_view text, std::initializer_list<SqlParameter> parameters) override;
  Result<SqlRows> run_while(std::string_view text, std::initializer_list<SqlParameter> parameters,
                            const WantsMore& wants_more) override;
  Status execute(const std::string& text) override;
  std::int64_t writer() const override { return 0; }

  // `body` as a transaction of its own; durable when it returns without an error.
  Status transact(SqlAccess access, const SqlDatabase::Body& body);
  // `body` in the transaction that is open. An exception of it (no memory, say) is an error like its others,
  // so that it is undone like them.
  Status call(const SqlDatabase::Body& body);
  // Whether a transaction is open: after some errors SQLite undoes it by itself.
  bool in_transaction() const;
  // Errors: kUnavailable where the file was moved or deleted, or another one has its place: what is written
  // to it then is lost when it is closed. It takes the time of a stat().
  Status check_in_place() const;
  // For as long as the store's options say, from now on.
  void wait_for_locks();

 private:
  SqliteConnection(std::string path, Nanos lock_timeout)
      : path_(std::move(path)), lock_timeout_(lock_timeout) {}
  Status error(int code) const;
  Status bind(sqlite3_stmt* statement, std::initializer_list<SqlParameter> parameters) const;
  Result<SqlRows> step_while(sqlite3_stmt* statement, const WantsMore& wants_more) const;

  std::string path_;
  Nanos lock_timeout_;
  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string_view, sqlite3_stmt*> statements_;
};

}  // namespace loci
