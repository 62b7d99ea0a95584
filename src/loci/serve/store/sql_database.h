// SPDX-License-Identifier: Apache-2.0
// A database that speaks SQL: what the store needs of SQLite and PostgreSQL, so that one body of
// statements (sql_store.h) serves both. Parameters are written $1, $2, ...
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

struct SqlNull {};
struct SqlBlob {
  std::string_view bytes;
};
// Views: they outlive the call.
using SqlParameter = std::variant<SqlNull, std::int64_t, std::string_view, SqlBlob>;

// What a statement returned; texts and blobs are both strings.
class SqlRows {
 public:
  using Value = std::variant<SqlNull, std::int64_t, std::string>;

  explicit SqlRows(std::size_t columns) : columns_(columns) {}
  void add(Value value) { values_.push_back(std::move(value)); }

  std::size_t size() const { return columns_ == 0 ? 0 : values_.size() / columns_; }
  bool empty() const { return values_.empty(); }
  bool is_null(std::size_t row, std::size_t column) const {
    return std::holds_alternative<SqlNull>(at(row, column));
  }
  std::int64_t integer(std::size_t row, std::size_t column) const {
    const auto* value = std::get_if<std::int64_t>(&at(row, column));
    LOCI_CHECK(value != nullptr, "a column of the store's schema is an integer");
    return *value;
  }
  const std::string& text(std::size_t row, std::size_t column) const {
    const auto* value = std::get_if<std::string>(&at(row, column));
    LOCI_CHECK(value != nullptr, "a column of the store's schema is a text");
    return *value;
  }

 private:
  const Value& at(std::size_t row, std::size_t column) const {
    LOCI_CHECK(column < columns_ && row < size(), "a value that was selected");
    return values_[row * columns_ + column];
  }

  std::size_t columns_;
  std::vector<Value> values_;
};

// A transaction that is open.
class SqlSession {
 public:
  virtual ~SqlSession() = default;
  // `statement` is prepared once for each connection, so it must be a constant.
  virtual Result<SqlRows> run(std::string_view statement, std::initializer_list<SqlParameter> parameters) = 0;
  // The same up to the row after which `wants_more` is false. A database that sends all rows at once returns
  // more.
  using WantsMore = std::function<bool(const SqlRows& so_far)>;
  virtual Result<SqlRows> run_while(std::string_view statement,
                                    std::initializer_list<SqlParameter> parameters, const WantsMore&) {
    return run(statement, parameters);
  }
  // Statements without parameters and results, not prepared: of migrations.
  virtual Status execute(const std::string& statements) = 0;
  // Seconds since 1970, by the clock that all users of the database have in common: of a file the machine's.
  virtual Result<std::int64_t> now_seconds() { return seconds_since_1970(); }
  // A number of this writer among those that work in parallel, small, for rows that are kept once for each.
  virtual std::int64_t writer() const = 0;
};

enum class SqlAccess : std::uint8_t {
  kRead,
  kWrite,
  kUpkeep,  // as kWrite, but durable only once a later kWrite or synchronise() is: deletions that nobody
            // waits for
  kRows,    // as kWrite, but for statements about rows that have nothing to do with each other: each one
            // sees what others had committed when it began, and none fails because another changed a row
  kSchema,  // as kWrite, of a migration: it may touch all rows, and take an hour
};
// For whom a transaction runs: those of several tenants take turns.
struct SqlCaller {
  std::string_view tenant = {};  // empty: the server itself
  std::uint64_t bytes = 0;       // about what it writes
};

enum class SqlDialect : std::uint8_t { kSqlite, kPostgres };

// Thread-safe.
class SqlDatabase {
 public:
  using Body = std::function<Status(SqlSession&)>;
  virtual ~SqlDatabase() = default;

  // Runs `body` as one transaction that sees and makes everything or nothing, as if it were alone. An
  // error of `body` undoes it. When transact() returns without an error, what was written is durable.
  // `body` may be run again (after a conflict with another server): it must not keep what a former run found.
  virtual Status transact(SqlAccess access, const SqlCaller& caller, const Body& body) = 0;
  Status transact(SqlAccess access, const Body& body) { return transact(access, SqlCaller(), body); }

  // Makes durable what kUpkeep has written.
  virtual Status synchronise() = 0;

  virtual SqlDialect dialect() const = 0;
  // The name of this user of the database, which responses in progress carry.
  virtual std::string instance() const = 0;
  // Whether the user of that name has ended. If so it cannot come back before the transaction ends.
  virtual Result<bool> has_ended(SqlSession& session, std::string_view instance) = 0;
  // The same, for those who only look: holds nothing longer than the statement, so that others see the same.
  virtual Result<bool> seems_ended(SqlSession& session, std::string_view instance) = 0;
  // Gives disk space that deletions left back to the system, a bounded part at a time; then synchronise().
  virtual Status reclaim() = 0;
  // After a deletion that was made durable: leaves nothing of it in the database's files, as far as the
  // database can.
  virtual Status erase_deleted() = 0;
  // For a stop that must not wait for a server that stands still: what waits for it ends with kUnavailable,
  // and so does every later call. Of a file: nothing, since each call of it ends.
  virtual void abandon() = 0;
};

}  // namespace loci
