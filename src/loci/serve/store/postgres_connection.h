// SPDX-License-Identifier: Apache-2.0
// One connection to PostgreSQL, and one transaction on it. libpqxx's exceptions end here.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <string_view>
#include <unordered_map>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"

namespace loci {

// What to do after an error.
enum class PostgresFault : std::uint8_t {
  kNone,
  kConflict,  // with another transaction: run it again
  kLost,      // the connection: run it again on another one
  kOther,
};

struct PostgresError {
  Status status;
  PostgresFault fault = PostgresFault::kOther;
};

// The exception that is being handled, as an error.
PostgresError current_postgres_error();

// Not thread-safe, but for interrupt().
class PostgresConnection {
 public:
  // `settings` as libpq takes them.
  static Result<std::unique_ptr<PostgresConnection>> connect(const std::string& settings);
  ~PostgresConnection();
  PostgresConnection(const PostgresConnection&) = delete;
  PostgresConnection& operator=(const PostgresConnection&) = delete;

  // Before anything else: limits on waiting, and a shared advisory lock on `instance`.
  Status begin(std::int64_t instance, Nanos lock_timeout);
  // The connection is lost: a call that waits for the server fails, and so does every later one. libpq itself
  // waits without a bound for a server that is there and does nothing.
  void interrupt();

  pqxx::connection& handle() { return handle_; }
  std::chrono::steady_clock::time_point made_at() const { return made_at_; }
  std::chrono::steady_clock::time_point used_at() const { return used_at_; }
  void note_used() { used_at_ = std::chrono::steady_clock::now(); }
  // The name under which the statement is prepared. Throws.
  const std::string& prepared(std::string_view statement);

 private:
  explicit PostgresConnection(const std::string& settings);

  const std::chrono::steady_clock::time_point made_at_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point used_at_ = made_at_;
  pqxx::connection handle_;
  const int socket_;  // the same as libpq's, under a number that only the destructor gives back
  std::unordered_map<std::string_view, std::string> prepared_;
};

class PostgresSession final : public SqlSession {
 public:
  PostgresSession(PostgresConnection& connection, pqxx::transaction_base& transaction)
      : connection_(connection), transaction_(transaction) {}

  Result<SqlRows> run(std::string_view statement, std::initializer_list<SqlParameter> parameters) override;
  Status execute(const std::string& statements) override;
  Result<std::int64_t> now_seconds() override;
  std::int64_t writer() const override;
  // Of the first statement that failed.
  PostgresFault fault() const { return fault_; }

 private:
  Status fail();

  PostgresConnection& connection_;
  pqxx::transaction_base& transaction_;
  PostgresFault fault_ = PostgresFault::kNone;
};

}  // namespace loci
