// SPDX-License-Identifier: Apache-2.0
// PostgreSQL as the store's database: many servers may share it. A few connections, made when they are
// needed, again when they are lost, and closed when nobody has used them for a while.
//
// Transactions run at "repeatable read". That is enough for them to be as if each were alone, because each
// that writes also writes the row of its thread (sql_rows.h): of two that touch the same thread the later
// one meets a conflict and is run again; what two threads have in common are unique ids, whose conflicts
// are run again too. SqlAccess::kRows is "read committed".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"
#include "loci/serve/store/store_options.h"

// Of statements: milliseconds since 1970 by PostgreSQL's clock, which all servers of a database have in
// common.
#define LOCI_DATABASE_NOW "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
// The same: when the server started.
#define LOCI_DATABASE_STARTED "CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) * 1000 AS BIGINT)"

namespace loci {

class PostgresConnection;

// Errors of transactions: kUnavailable (no connection, a lock or a statement took too long, the server did
// not answer for StoreOptions::answer_timeout, four times that in upkeep; it has not answered others, and
// one of them asks it again; its disk is full, the connection was lost during a commit: whether it took place
// is not known then).
class PostgresDatabase final : public SqlDatabase {
 public:
  // `url` as libpq takes it. The first connection is waited for as a start does, however short the limits in
  // `options` are.
  // Errors: kUnavailable, kInvalidArgument (the URL, a database that is not in UTF-8).
  static Result<std::unique_ptr<PostgresDatabase>> open(const std::string& url, const StoreOptions& options);
  ~PostgresDatabase() override;

  using SqlDatabase::transact;
  Status transact(SqlAccess access, const SqlCaller& caller, const Body& body) override;
  Status synchronise() override { return {}; }  // each transaction is durable
  SqlDialect dialect() const override { return SqlDialect::kPostgres; }
  // A random number; each connection holds a shared advisory lock on it, so it has ended when nobody does.
  std::string instance() const override;
  // (Nobody holds it just after PostgreSQL itself has started: instances connect again when they need to.)
  Result<bool> has_ended(SqlSession& session, std::string_view instance) override;
  Result<bool> seems_ended(SqlSession& session, std::string_view instance) override;
  Status reclaim() override { return {}; }        // autovacuum does
  Status erase_deleted() override { return {}; }  // the same

  // (A connection that is being made ends with its own timeout.)
  void abandon() override;

  // Runs `job` while no other server does the same: several may start at once. Waits for that, and makes the
  // schema "loci", in which the tables are, with a start's patience; the job's transactions have their own.
  Status alone(const std::function<Status()>& job);
  // Runs statements that make what is missing, alone and with a start's patience.
  Status make_tables(const std::string& statements);

 private:
  struct Pool;
  Status run_alone(const std::function<Status(PostgresConnection&)>& job);
  explicit PostgresDatabase(std::unique_ptr<Pool> pool);

  std::unique_ptr<Pool> pool_;
};

}  // namespace loci
