// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/sqlite_database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <unordered_map>

#include "loci/base/units.h"

namespace loci {
namespace {

constexpr std::int64_t kApplicationId = 0x4c6f6369;  // "Loci": tells whose file it is
constexpr int kReclaimPages = 2'048;

// The error that the connection has just met.
Status sqlite_error(sqlite3* connection, int code, std::string_view path, Nanos lock_timeout) {
  const std::string where = fmt::format("the conversation store {}: ", path);
  const std::string said = connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {StatusCode::kUnavailable, where + fmt::format("another process holds its lock for more than {}",
                                                            format_duration(lock_timeout))};
    case SQLITE_FULL:
      return {StatusCode::kUnavailable, where + "the disk is full: make space, it works again then"};
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_NOMEM:
    case SQLITE_PROTOCOL:
      return {StatusCode::kUnavailable, where + fmt::format("{} (SQLite's code {})", said, code)};
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT: return data_loss(where + fmt::format("it is damaged ({}): see `loci inspect`", said));
    case SQLITE_NOTADB: return invalid_argument(where + "expected a SQLite database, found another file");
    case SQLITE_TOOBIG: return invalid_argument(where + "a text is larger than SQLite takes");
    default: return internal_error(where + fmt::format("{} (SQLite's code {})", said, code));
  }
}

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
  const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

}  // namespace

struct SqliteDatabase::Connection final : SqlSession {
  std::string path;
  Nanos lock_timeout = 0;
  sqlite3* handle = nullptr;
  std::mutex mutex;  // held during a transaction; guards everything below, and `handle`
  std::unordered_map<std::string_view, sqlite3_stmt*> statements;

  ~Connection() override {
    for (const auto& [text, statement] : statements) sqlite3_finalize(statement);
    sqlite3_close(handle);
  }

  Status error(int code) const { return sqlite_error(handle, code, path, lock_timeout); }

  Status execute(const std::string& text) override {
    const int code = sqlite3_exec(handle, text.c_str(), nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? Status() : error(code);
  }

  std::int64_t writer() const override { return 0; }

  Result<SqlRows> run(std::string_view text, std::initializer_list<SqlParameter> parameters) override {
    sqlite3_stmt*& statement = statements[text];
    if (statement == nullptr) {
      const int code = sqlite3_prepare_v3(handle, text.data(), static_cast<int>(text.size()),
                                          SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
      if (code != SQLITE_OK) return error(code);
    }
    Status bound = bind(statement, parameters);
    Result<SqlRows> rows = bound.ok() ? step_all(statement) : Result<SqlRows>(std::move(bound));
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return rows;
  }

 private:
  Status bind(sqlite3_stmt* statement, std::initializer_list<SqlParameter> parameters) const {
    int number = 0;
    for (const SqlParameter& parameter : parameters) {
      const int at = sqlite3_bind_parameter_index(statement, fmt::format("${}", ++number).c_str());
      LOCI_CHECK(at > 0, "every parameter of a statement is used");
      int code = SQLITE_OK;
      if (const auto* integer = std::get_if<std::int64_t>(&parameter)) {
        code = sqlite3_bind_int64(statement, at, *integer);
      } else if (const auto* text = std::get_if<std::string_view>(&parameter)) {
        const char* data = text->empty() ? "" : text->data();
        code = sqlite3_bind_text64(statement, at, data, text->size(), SQLITE_STATIC, SQLITE_UTF8);
      } else if (const auto* blob = std::get_if<SqlBlob>(&parameter)) {
        const char* data = blob->bytes.empty() ? "" : blob->bytes.data();
        code = sqlite3_bind_blob64(statement, at, data, blob->bytes.size(), SQLITE_STATIC);
      }
      if (code != SQLITE_OK) return error(code);
    }
    return {};
  }

  Result<SqlRows> step_all(sqlite3_stmt* statement) const {
    const int columns = sqlite3_column_count(statement);
    SqlRows rows(static_cast<std::size_t>(columns));
    int code = SQLITE_OK;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
      for (int column = 0; column < columns; ++column) {
        const int type = sqlite3_column_type(statement, column);
        if (type == SQLITE_NULL) {
          rows.add(SqlNull{});
        } else if (type == SQLITE_INTEGER) {
          rows.add(sqlite3_column_int64(statement, column));
        } else {
          const auto* data = static_cast<const char*>(sqlite3_column_blob(statement, column));
          const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
          if (data == nullptr && size > 0) return error(SQLITE_NOMEM);
          rows.add(data == nullptr ? std::string() : std::string(data, size));
        }
      }
    }
    if (code != SQLITE_DONE) return error(code);
    return rows;
  }
};

SqliteDatabase::SqliteDatabase(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
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
  auto connection = std::make_unique<Connection>();
  connection->path = path;
  connection->lock_timeout = options.lock_timeout;
  // One mutex (ours) guards the connection, so SQLite needs none.
  const int flags =
      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
      (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  const int code = sqlite3_open_v2(path.c_str(), &connection->handle, flags, options.sqlite_vfs);
  if (code != SQLITE_OK) return connection->error(code);
  const Nanos milliseconds = std::clamp<Nanos>(options.lock_timeout / kNanosPerMilli, 0, INT32_MAX);
  sqlite3_busy_timeout(connection->handle, static_cast<int>(milliseconds));
  LOCI_ASSIGN_OR_RETURN(const FileKind kind, read_kind(*connection));
  LOCI_RETURN_IF_ERROR(check_kind(kind, path, mode));
  if (mode == Mode::kReadWrite)
    LOCI_RETURN_IF_ERROR(configure(*connection, path, options.sqlite_checkpoint_pages));
  if (is_fresh(kind))
    LOCI_RETURN_IF_ERROR(connection->execute(fmt::format("PRAGMA application_id = {};", kApplicationId)));
  return std::unique_ptr<SqliteDatabase>(new SqliteDatabase(std::move(connection)));
}

Status SqliteDatabase::transact(SqlAccess access, const Body& body) {
  Connection& connection = *connection_;
  const std::lock_guard lock(connection.mutex);
  LOCI_RETURN_IF_ERROR(connection.execute(access == SqlAccess::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"));
  Status status = body(connection);
  if (status.ok()) status = connection.execute("COMMIT");
  // After some errors SQLite has rolled back by itself.
  if (!status.ok() && sqlite3_get_autocommit(connection.handle) == 0) (void)connection.execute("ROLLBACK");
  return status;
}

Status SqliteDatabase::reclaim() {
  const std::lock_guard lock(connection_->mutex);
  return connection_->execute(fmt::format("PRAGMA incremental_vacuum({});", kReclaimPages));
}

Result<std::string> SqliteDatabase::integrity_check() {
  const std::lock_guard lock(connection_->mutex);
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows, connection_->run("PRAGMA integrity_check", {}));
  std::string found;
  for (std::size_t i = 0; i < rows.size(); ++i) found += (i == 0 ? "" : "\n") + rows.text(i, 0);
  LOCI_ASSIGN_OR_RETURN(const SqlRows keys, connection_->run("PRAGMA foreign_key_check", {}));
  if (!keys.empty()) found += fmt::format("\n{} rows refer to rows that are not there", keys.size());
  return found;
}

Status SqliteDatabase::checkpoint() {
  const std::lock_guard lock(connection_->mutex);
  return connection_->execute("PRAGMA wal_checkpoint(PASSIVE);");
}

}  // namespace loci
