// SPDX-License-Identifier: Apache-2.0
// SQLite as the store's database: one file, journalled ahead (WAL), with one connection that writes and some
// that read. A transaction that wrote is on the disk when it returns; those that come while the disk
// synchronises share the next fsync (commit_groups.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/serve/store/commit_groups.h"
#include "loci/serve/store/sql_database.h"
#include "loci/serve/store/sqlite_connection.h"
#include "loci/serve/store/store_options.h"

namespace loci {

// Who writes waits for who wrote before; who reads waits for neither. A tenant reads on at most kReadersOfOne
// connections at once, so that others find one. Errors of transactions: kUnavailable
// (another process holds the lock for longer than the timeout, the disk is full or fails; it works again when
// that has passed), kDataLoss (the file is damaged).
class SqliteDatabase final : public SqlDatabase {
 public:
  enum class Mode : std::uint8_t { kReadWrite, kReadOnly };
  static constexpr unsigned kReadersOfOne = 2;

  // kReadWrite: makes the file and its folder where they are missing, for their owner alone.
  // Errors: as above; kInvalidArgument where the file is no store of Loci's; kNotFound (kReadOnly).
  static Result<std::unique_ptr<SqliteDatabase>> open(const std::string& path, Mode mode,
                                                      const StoreOptions& options);
  ~SqliteDatabase() override;

  using SqlDatabase::transact;
  Status transact(SqlAccess access, const SqlCaller& caller, const Body& body) override;
  Status synchronise() override;
  SqlDialect dialect() const override { return SqlDialect::kSqlite; }
  std::string instance() const override { return "local"; }
  // One server at a time serves a file: whoever asks at its start is alone.
  Result<bool> has_ended(SqlSession&, std::string_view) override { return true; }
  Result<bool> seems_ended(SqlSession&, std::string_view) override { return true; }
  Status reclaim() override;
  // The file itself has zeros where something was deleted (secure_delete); its log is emptied. Where another
  // program reads just then, the next reclaim() does it.
  Status erase_deleted() override;
  void abandon() override {}

  // What `PRAGMA integrity_check` finds, also where the damage ends it; "ok" where nothing is wrong.
  Result<std::string> integrity_check();

 private:
  class Reader;
  // Runs the job while nobody commits; what it writes is not synchronised, only kept in order.
  Status unsynchronised(const std::function<Status()>& job);
  Status synchronise_commits();
  Status empty_log();
  explicit SqliteDatabase(std::unique_ptr<SqliteConnection> connection);
  void commit(std::span<CommitMember* const> members);
  bool commit_together(std::span<CommitMember* const> members);

  std::unique_ptr<SqliteConnection> connection_;  // the leader's of groups_
  CommitGroups groups_;
  // The leader's too:
  bool synchronises_ = true;       // commits do
  int synchronised_ = 0;           // by synchronise(), how often
  std::uint64_t erased_ = 0;       // so many deletions are no longer in the log
  bool log_is_held_ = false;       // by another program: turns wait for it once, until the next reclaim()
  std::size_t readers_count_ = 0;  // set by open(); 0: `connection_` reads too
  std::atomic<std::uint64_t> deletions_{1};  // that erase_deleted() was called for; one before the start
  Mutex readers_mutex_;
  Condition reader_back_;
  std::vector<std::unique_ptr<SqliteConnection>> readers_ GUARDED_BY(readers_mutex_);  // idle
  std::map<std::string, unsigned, std::less<>> reading_ GUARDED_BY(readers_mutex_);    // by tenant; above 0
};

}  // namespace loci
