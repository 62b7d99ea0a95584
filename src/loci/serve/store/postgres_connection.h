// SPDX-License-Identifier: Apache-2.0
// One connection to PostgreSQL, and one transaction on it. libpqxx's exceptions end here.
#pragma once

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

// Not thread-safe.
class PostgresConnection {
 public:
  // `settings` as libpq takes them; the connection holds a shared advisory lock on `instance`.
  static Result<std::unique_ptr<PostgresConnection>> connect(const std::string& settings,
                                                             std::int64_t instance, Nanos lock_timeout);

  pqxx::connection& handle() { return handle_; }
  // The name under which the statement is prepared. Throws.
  const std::string& prepared(std::string_view statement);

 private:
  explicit PostgresConnection(const std::string& settings) : handle_(settings) {}

  pqxx::connection handle_;
  std::unordered_map<std::string_view, std::string> prepared_;
};

class PostgresSession final : public SqlSession {
 public:
  PostgresSession(PostgresConnection& connection, pqxx::transaction_base& transaction)
      : connection_(connection), transaction_(transaction) {}

  Result<SqlRows> run(std::string_view statement, std::initializer_list<SqlParameter> parameters) override;
  Status execute(const std::string& statements) override;
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
