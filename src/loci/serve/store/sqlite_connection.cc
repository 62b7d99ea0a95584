// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/sqlite_connection.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "loci/base/units.h"

namespace loci {
namespace {

// The error that the connection has just met.
Status sqlite_error(sqlite3* connection, int code, std::string_view path, Nanos lock_timeout) {
  const std::string where = fmt::format("the conversation store {}: ", path);
  const std::string said = connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code);
  // What the system said; SQLite itself tells a full disk from a failing one only where it makes the file or
  // its log longer.
  const int reason =
      connection != nullptr && (code & 0xff) == SQLITE_IOERR ? sqlite3_system_errno(connection) : 0;
  if ((code & 0xff) == SQLITE_FULL || reason == ENOSPC || reason == EDQUOT)
    return {StatusCode::kUnavailable, where + "the disk is full: make space, it works again then"};
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {StatusCode::kUnavailable, where + fmt::format("another process holds its lock for more than {}",
                                                            format_duration(lock_timeout))};
    case SQLITE_IOERR:
      if (reason != 0)
        return {StatusCode::kUnavailable,
                where + fmt::format("{}: {} (SQLite's code {})", said, std::strerror(reason), code)};
      [[fallthrough]];
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_NOMEM:
    case SQLITE_PROTOCOL:
      return {StatusCode::kUnavailable, where + fmt::format("{} (SQLite's code {})", said, code)};
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT:
      return data_loss(where + fmt::format("it is damaged ({}): put back a backup, or what `sqlite3 FILE "
                                           ".recover` saves of it, while no server uses it",
                                           said));
    case SQLITE_NOTADB: return data_loss(where + "expected a SQLite database, found another file");
    // A client's fault, and for it to read.
    case SQLITE_TOOBIG: return invalid_argument("a text is larger than the conversation store takes");
    default: return internal_error(where + fmt::format("{} (SQLite's code {})", said, code));
  }
}

}  // namespace

Result<std::unique_ptr<SqliteConnection>> SqliteConnection::open(const std::string& path, int flags,
                                                                 const StoreOptions& options) {
  std::unique_ptr<SqliteConnection> made(new SqliteConnection(path, options.lock_timeout));
  // Whoever owns the connection lets one thread at a time use it, so SQLite needs no mutex.
  flags |= SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &made->handle_, flags, options.sqlite_vfs);
  if (code != SQLITE_OK) return made->error(code);
  made->wait_for_locks();
  return made;
}

void SqliteConnection::wait_for_locks() {
  const Nanos milliseconds = std::clamp<Nanos>(lock_timeout_ / kNanosPerMilli, 0, INT32_MAX);
  sqlite3_busy_timeout(handle_, static_cast<int>(milliseconds));
}

SqliteConnection::~SqliteConnection() {
  for (const auto& [text, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Status SqliteConnection::error(int code) const { return sqlite_error(handle_, code, path_, lock_timeout_); }

bool SqliteConnection::in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

// (A file system of another kind, SQLite's vfs, need not answer.)
Status SqliteConnection::check_in_place() const {
  int has_moved = 0;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
  if (has_moved == 0) return {};
  return {StatusCode::kUnavailable,
          fmt::format("the conversation store {}: the file that the server uses was moved or deleted: put it "
                      "back at its place, or start the server again",
                      path_)};
}

Status SqliteConnection::execute(const std::string& text) {
  const int code = sqlite3_exec(handle_, text.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : error(code);
}

Status SqliteConnection::transact(SqlAccess access, const SqlDatabase::Body& body) {
  LOCI_RETURN_IF_ERROR(execute(access == SqlAccess::kRead ? "BEGIN" : "BEGIN IMMEDIATE"));
  Status status = call(body);
  if (status.ok()) status = execute("COMMIT");
  if (!status.ok() && in_transaction()) (void)execute("ROLLBACK");
  return status;
}

Status SqliteConnection::call(const SqlDatabase::Body& body) {
  try {
    return body(*this);
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

namespace {

// A statement that an exception left in its middle could not be run again.
class StatementInUse {
 public:
  explicit StatementInUse(sqlite3_stmt* statement) : statement_(statement) {}
  ~StatementInUse() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  StatementInUse(const StatementInUse&) = delete;
  StatementInUse& operator=(const StatementInUse&) = delete;

 private:
  sqlite3_stmt* statement_;
};

}  // namespace

Result<SqlRows> SqliteConnection::run(std::string_view text, std::initializer_list<SqlParameter> parameters) {
  return run_while(text, parameters, [](const SqlRows&) { return true; });
}

Result<SqlRows> SqliteConnection::run_while(std::string_view text,
                                            std::initializer_list<SqlParameter> parameters,
                                            const WantsMore& wants_more) {
  sqlite3_stmt*& statement = statements_[text];
  if (statement == nullptr) {
    const int code = sqlite3_prepare_v3(handle_, text.data(), static_cast<int>(text.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return error(code);
  }
  const StatementInUse use(statement);
  LOCI_RETURN_IF_ERROR(bind(statement, parameters));
  return step_while(statement, wants_more);
}

Status SqliteConnection::bind(sqlite3_stmt* statement, std::initializer_list<SqlParameter> parameters) const {
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

Result<SqlRows> SqliteConnection::step_while(sqlite3_stmt* statement, const WantsMore& wants_more) const {
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
    if (!wants_more(rows)) return rows;
  }
  if (code != SQLITE_DONE) return error(code);
  return rows;
}

}  // namespace loci
