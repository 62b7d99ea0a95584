// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/sqlite_database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>

#include "loci/base/durable_file.h"

namespace loci {
namespace {

constexpr std::int64_t kApplicationId = 0x4c6f6369;  // "Loci": tells whose file it is
// Given back in one part: some milliseconds of the disk.
constexpr int kReclaimPages = 256;
constexpr int kReclaimParts = 8;
// How long emptying the log waits for who reads; turns wait meanwhile.
constexpr int kEmptyLogMilliseconds = 200;
// Connections that only read, so that nobody who reads waits for a commit.
constexpr std::size_t kReaders = 4;
constexpr const char* kReaderSettings =
    "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size "
    "= -4096;";

// The file and its folder, for their owner alone. An error is left to SQLite's opening to report.
void make_file(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty() && std::filesystem::create_directories(folder, ignored))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return;
  ::close(file);
  // The file's name must outlive a loss of power as what is in it does.
  (void)sync_folder_of(path);
}

}  // namespace

SqliteDatabase::SqliteDatabase(std::unique_ptr<SqliteConnection> connection)
    : connection_(std::move(connection)),
      groups_([this](std::span<CommitMember* const> members) { commit(members); }) {}
SqliteDatabase::~SqliteDatabase() = default;

namespace {

// A value that a pragma answers; pragmas are not cached.
Result<std::string> ask(SqlSession& session, std::string_view pragma) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(pragma, {}));
  if (rows.empty()) return std::string();
  return rows.text(0, 0);
}

// The number of tables, and whose file it says that it is.
struct FileKind {
  std::int64_t tables = 0;
  std::int64_t application = 0;
};

Result<FileKind> read_kind(SqlSession& session) {
  FileKind kind;
  LOCI_ASSIGN_OR_RETURN(const SqlRows tables, session.run("SELECT COUNT(*) FROM sqlite_schema", {}));
  LOCI_ASSIGN_OR_RETURN(const SqlRows id, session.run("PRAGMA application_id", {}));
  kind.tables = tables.integer(0, 0);
  kind.application = id.integer(0, 0);
  return kind;
}

bool is_fresh(const FileKind& kind) { return kind.tables == 0 && kind.application == 0; }

Status check_kind(const FileKind& kind, std::string_view path, SqliteDatabase::Mode mode) {
  if (kind.application == kApplicationId) return {};
  if (is_fresh(kind) && mode == SqliteDatabase::Mode::kReadWrite) return {};
  return invalid_argument(
      fmt::format("the conversation store {}: expected a store of Loci's, found {}", path,
                  kind.tables == 0 ? "an empty file" : "a SQLite database of another program"));
}

// How the connection is to work, and how the file is made if it is new.
Status configure(SqlSession& session, std::string_view path, int checkpoint_pages) {
  // EXTRA while the file is made: until it journals ahead, an older journal that comes back with the power
  // would undo the header, and SQLite drops the log of a file without one.
  LOCI_RETURN_IF_ERROR(
      session.execute("PRAGMA synchronous = EXTRA;"
                      "PRAGMA foreign_keys = ON;"
                      "PRAGMA trusted_schema = OFF;"
                      "PRAGMA cell_size_check = ON;"
                      "PRAGMA temp_store = MEMORY;"
                      "PRAGMA cache_size = -16384;"
                      "PRAGMA secure_delete = ON;"
                      "PRAGMA auto_vacuum = INCREMENTAL;"));
  LOCI_ASSIGN_OR_RETURN(const std::string mode, ask(session, "PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return {StatusCode::kUnavailable,
            fmt::format("the conversation store {}: expected a file system where SQLite can journal ahead "
                        "(WAL), found one where it journals by '{}': put the store on a local disk",
                        path, mode)};
  }
  // FULL: the log is synchronised before a commit returns. The log shrinks back after a long checkpoint.
  return session.execute(
      fmt::format("PRAGMA synchronous = FULL;"
                  "PRAGMA journal_size_limit = 67108864;"
                  "PRAGMA wal_autocheckpoint = {};",
                  checkpoint_pages));
}

}  // namespace

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::open(const std::string& path, Mode mode,
                                                             const StoreOptions& options) {
  if (path.find('\0') != std::string::npos || path.empty())
    return invalid_argument("the conversation store: expected a path, found none");
  std::error_code ignored;
  if (mode == Mode::kReadWrite && options.sqlite_vfs == nullptr) make_file(path);
  if (mode == Mode::kReadOnly && !std::filesystem::exists(path, ignored))
    return not_found(fmt::format("there is no file {}", path));
  const int flags =
      mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                        SqliteConnection::open(path, flags, options));
  LOCI_ASSIGN_OR_RETURN(const FileKind kind, read_kind(*connection));
  LOCI_RETURN_IF_ERROR(check_kind(kind, path, mode));
  if (mode == Mode::kReadWrite)
    LOCI_RETURN_IF_ERROR(configure(*connection, path, options.sqlite_checkpoint_pages));
  if (is_fresh(kind))
    LOCI_RETURN_IF_ERROR(connection->execute(fmt::format("PRAGMA application_id = {};", kApplicationId)));
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(std::move(connection)));
  // A test's disk takes one connection.
  const std::size_t readers = mode == Mode::kReadWrite && options.sqlite_vfs == nullptr ? kReaders : 0;
  for (std::size_t i = 0; i < readers; ++i) {
    LOCI_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> reader,
                          SqliteConnection::open(path, SQLITE_OPEN_READONLY, options));
    LOCI_RETURN_IF_ERROR(reader->execute(kReaderSettings));
    const MutexLock lock(database->readers_mutex_);
    database->readers_.push_back(std::move(reader));
    ++database->readers_count_;
  }
  return database;
}

// One of the connections that read. It is given back whatever comes of the reading: those who wait for one
// would wait for ever.
class SqliteDatabase::Reader {
 public:
  // `tenant`: empty: the server itself, which has no bound of its own.
  Reader(SqliteDatabase& database, std::string_view tenant) : database_(database), tenant_(tenant) {
    MutexLock lock(database.readers_mutex_);
    database.reader_back_.wait(lock, [this]() REQUIRES(database_.readers_mutex_) {
      if (database_.readers_.empty()) return false;
      const auto found = database_.reading_.find(tenant_);
      return tenant_.empty() || found == database_.reading_.end() || found->second < kReadersOfOne;
    });
    ++database.reading_[std::string(tenant)];
    connection_ = std::move(database.readers_.back());
    database.readers_.pop_back();
  }
  ~Reader() {
    {
      const MutexLock lock(database_.readers_mutex_);
      database_.readers_.push_back(std::move(connection_));  // it has had room for all since open()
      const auto found = database_.reading_.find(tenant_);
      if (--found->second == 0) database_.reading_.erase(found);
    }
    database_.reader_back_.notify_all();  // not each who waits may have it
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  SqliteConnection& connection() { return *connection_; }

 private:
  SqliteDatabase& database_;
  const std::string_view tenant_;
  std::unique_ptr<SqliteConnection> connection_;
};

Status SqliteDatabase::transact(SqlAccess access, const SqlCaller& caller, const Body& body) {
  if (access == SqlAccess::kWrite || access == SqlAccess::kRows || access == SqlAccess::kSchema)
    return groups_.run(caller, body);
  if (access == SqlAccess::kUpkeep)
    return unsynchronised([&] { return connection_->transact(SqlAccess::kWrite, body); });
  if (readers_count_ == 0)
    return groups_.alone([&] { return connection_->transact(SqlAccess::kRead, body); });
  return Reader(*this, caller.tenant).connection().transact(access, body);
}

// A log that is not synchronised is whole up to some transaction after a loss of power, and the next turn's
// fsync is that of all before it.
Status SqliteDatabase::unsynchronised(const std::function<Status()>& job) {
  return groups_.alone([&]() -> Status {
    LOCI_RETURN_IF_ERROR(connection_->check_in_place());
    synchronises_ = false;
    LOCI_RETURN_IF_ERROR(connection_->execute("PRAGMA synchronous = NORMAL"));
    return job();
  });
}

// Before anything is committed that somebody waits for.
Status SqliteDatabase::synchronise_commits() {
  if (synchronises_) return {};
  LOCI_RETURN_IF_ERROR(connection_->execute("PRAGMA synchronous = FULL"));
  synchronises_ = true;
  return {};
}

Status SqliteDatabase::synchronise() {
  return groups_.run({}, [this](SqlSession& session) {
    // Something has to be written for the log to be synchronised.
    return session.execute(fmt::format("PRAGMA user_version = {};", ++synchronised_));
  });
}

void SqliteDatabase::commit(std::span<CommitMember* const> members) {
  // Of a group that was left by an exception.
  if (connection_->in_transaction()) (void)connection_->execute("ROLLBACK");
  Status ready = connection_->check_in_place();
  if (ready.ok()) ready = synchronise_commits();
  if (!ready.ok()) {
    for (CommitMember* member : members) member->status = ready;
    return;
  }
  if (members.size() > 1 && commit_together(members)) return;
  for (CommitMember* member : members)
    member->status = connection_->transact(SqlAccess::kWrite, *member->body);
}

// False: nothing of it is there, since one of them (or the disk) undid all.
bool SqliteDatabase::commit_together(std::span<CommitMember* const> members) {
  if (const Status begun = connection_->execute("BEGIN IMMEDIATE"); !begun.ok()) {
    // Each alone would wait for the same lock, one after the other.
    for (CommitMember* member : members) member->status = begun;
    return true;
  }
  Status status;
  for (CommitMember* member : members) {
    status = connection_->execute("SAVEPOINT member");
    if (!status.ok()) break;
    member->status = connection_->call(*member->body);
    if (!connection_->in_transaction()) return false;
    status =
        connection_->execute(member->status.ok() ? "RELEASE member" : "ROLLBACK TO member; RELEASE member");
    if (!status.ok()) break;
  }
  if (status.ok()) status = connection_->execute("COMMIT");
  if (status.ok()) return true;
  if (connection_->in_transaction()) (void)connection_->execute("ROLLBACK");
  return false;
}

Status SqliteDatabase::reclaim() {
  const std::string statement = fmt::format("PRAGMA incremental_vacuum({});", kReclaimPages);
  // Turns are committed in between.
  for (int part = 0; part < kReclaimParts; ++part)
    LOCI_RETURN_IF_ERROR(unsynchronised([&] { return connection_->execute(statement); }));
  LOCI_RETURN_IF_ERROR(synchronise());
  return groups_.alone([&] {
    log_is_held_ = false;
    return erased_ >= deletions_.load() ? Status() : empty_log();
  });
}

Status SqliteDatabase::erase_deleted() {
  const std::uint64_t deletion = deletions_.fetch_add(1) + 1;
  return groups_.alone([&] { return erased_ >= deletion || log_is_held_ ? Status() : empty_log(); });
}

Status SqliteDatabase::empty_log() {
  const std::uint64_t deletions = deletions_.load();
  LOCI_RETURN_IF_ERROR(connection_->execute(fmt::format("PRAGMA busy_timeout = {};", kEmptyLogMilliseconds)));
  const Result<SqlRows> rows = connection_->run("PRAGMA wal_checkpoint(TRUNCATE)", {});
  connection_->wait_for_locks();
  LOCI_RETURN_IF_ERROR(rows.status());
  const bool emptied = !rows->empty() && rows->integer(0, 0) == 0;
  if (emptied) erased_ = deletions;
  log_is_held_ = !emptied;
  return {};
}

Result<std::string> SqliteDatabase::integrity_check() {
  std::string found;
  const auto add = [&](std::string_view line) {
    if (!found.empty()) found += '\n';
    found += line;
  };
  const Status done = groups_.alone([&]() -> Status {
    const auto take_last = [&](const SqlRows& rows) {
      add(rows.text(rows.size() - 1, 0));
      return true;
    };
    LOCI_RETURN_IF_ERROR(connection_->run_while("PRAGMA integrity_check", {}, take_last).status());
    LOCI_ASSIGN_OR_RETURN(const SqlRows keys, connection_->run("PRAGMA foreign_key_check", {}));
    if (!keys.empty()) add(fmt::format("{} rows refer to rows that are not there", keys.size()));
    return {};
  });
  if (done.code() == StatusCode::kDataLoss) {
    add(done.message());
    return found;
  }
  LOCI_RETURN_IF_ERROR(done);
  return found;
}

}  // namespace loci
