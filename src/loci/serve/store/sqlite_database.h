// SPDX-License-Identifier: Apache-2.0
// SQLite as the store's database: one file and one connection, journalled ahead (WAL). A transaction that
// wrote is on the disk when it returns: about one fsync, of the log.
#pragma once

#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"
#include "loci/serve/store/store_options.h"

namespace loci {

// Calls wait for one another. Errors of transactions: kUnavailable (another process holds the lock for
// longer than the timeout, the disk is full or fails; it works again when that has passed), kDataLoss (the
// file is damaged).
class SqliteDatabase final : public SqlDatabase {
 public:
  enum class Mode : std::uint8_t { kReadWrite, kReadOnly };

  // kReadWrite: makes the file and its folder where they are missing, for their owner alone.
  // Errors: as above; kInvalidArgument where the file is no store of Loci's; kNotFound (kReadOnly).
  static Result<std::unique_ptr<SqliteDatabase>> open(const std::string& path, Mode mode,
                                                      const StoreOptions& options);
  ~SqliteDatabase() override;

  Status transact(SqlAccess access, const Body& body) override;
  SqlDialect dialect() const override { return SqlDialect::kSqlite; }
  std::string instance() const override { return "local"; }
  // One server at a time serves a file: whoever asks at its start is alone.
  Result<bool> has_ended(SqlSession&, std::string_view) override { return true; }
  Status reclaim() override;

  // What `PRAGMA integrity_check` finds; "ok" where nothing is wrong.
  Result<std::string> integrity_check();
  // Moves what the log holds into the file, as far as readers let it.
  Status checkpoint();

 private:
  struct Connection;
  explicit SqliteDatabase(std::unique_ptr<Connection> connection);

  std::unique_ptr<Connection> connection_;
};

}  // namespace loci
