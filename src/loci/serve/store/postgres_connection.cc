// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/postgres_connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "loci/base/hex.h"
#include "loci/serve/store/postgres_database.h"

namespace loci {
namespace {

// A parameter as libpqxx takes it: text, or null. A blob is written as PostgreSQL reads bytea: \x and
// hexadecimal digits.
struct TextParameter {
  std::optional<std::string> text;
};

TextParameter to_text(const SqlParameter& parameter) {
  if (const auto* integer = std::get_if<std::int64_t>(&parameter)) return {std::to_string(*integer)};
  if (const auto* text = std::get_if<std::string_view>(&parameter)) return {std::string(*text)};
  if (const auto* blob = std::get_if<SqlBlob>(&parameter)) return {"\\x" + to_hex(blob->bytes)};
  return {};
}

// PostgreSQL's object ids of the types that the store's statements return.
constexpr pqxx::oid kBytea = 17, kInt8 = 20, kInt2 = 21, kInt4 = 23;

SqlRows::Value to_value(const pqxx::field& field, pqxx::oid type) {
  if (field.is_null()) return SqlNull{};
  const std::string_view text(field.c_str(), field.size());
  if (type == kInt8 || type == kInt4 || type == kInt2) {
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
  if (type == kBytea) return pqxx::binarystring(field).str();
  return std::string(text);
}

bool begins_with_any(std::string_view state, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return state.starts_with(prefix); });
}

// The first line of what PostgreSQL says, without its "ERROR:  ".
std::string first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (const std::size_t colon = text.find(":  "); colon < 10) text.remove_prefix(colon + 3);
  return std::string(text);
}

PostgresError from_sql_error(const pqxx::sql_error& error) {
  const std::string& state = error.sqlstate();
  std::string text = fmt::format("the database (PostgreSQL): {}", first_line(error.what()));
  if (!state.empty()) text += fmt::format(" (SQLSTATE {})", state);
  // Serialization, deadlock; rows that another transaction has made or deleted since this one began.
  if (begins_with_any(state, {"40001", "40P01", "23505", "23503"}))
    return {{StatusCode::kUnavailable, text}, PostgresFault::kConflict};
  if (begins_with_any(state, {"08", "57P"})) return {{StatusCode::kUnavailable, text}, PostgresFault::kLost};
  // Resources, timeouts of locks and statements, a server that takes no writes, its disk.
  if (begins_with_any(state, {"53", "55P03", "57014", "25006", "58", "28", "42501"}))
    return {{StatusCode::kUnavailable, text}, PostgresFault::kOther};
  if (state.starts_with("XX")) return {data_loss(text), PostgresFault::kOther};
  // A client's fault, and for it to read: it is not told what statement has its value.
  if (state.starts_with("22") || state.starts_with("54"))
    return {invalid_argument(fmt::format("the conversation store takes no such value (SQLSTATE {})", state)),
            PostgresFault::kOther};
  return {internal_error(text), PostgresFault::kOther};
}

Status in_doubt() {
  return {StatusCode::kCancelled,
          "the connection to the conversation store was lost during a commit; whether it took place is not "
          "known"};
}

}  // namespace
}  // namespace loci

namespace pqxx {
template <>
struct string_traits<loci::TextParameter> {
  static constexpr const char* name() noexcept { return "loci::TextParameter"; }
  static constexpr bool has_null() noexcept { return true; }
  static bool is_null(const loci::TextParameter& parameter) { return !parameter.text; }
  static std::string to_string(const loci::TextParameter& parameter) { return *parameter.text; }
};
}  // namespace pqxx

namespace loci {

PostgresError current_postgres_error() {
  try {
    throw;
  } catch (const pqxx::in_doubt_error&) {
    return {in_doubt(), PostgresFault::kOther};
  } catch (const pqxx::broken_connection& error) {
    return {
        {StatusCode::kUnavailable, fmt::format("the database (PostgreSQL): {}", first_line(error.what()))},
        PostgresFault::kLost};
  } catch (const pqxx::statement_completion_unknown&) {
    return {in_doubt(), PostgresFault::kOther};
  } catch (const pqxx::transaction_rollback& error) {  // serialization, deadlock
    return {
        {StatusCode::kUnavailable, fmt::format("the database (PostgreSQL): {}", first_line(error.what()))},
        PostgresFault::kConflict};
  } catch (const pqxx::sql_error& error) {
    return from_sql_error(error);
  } catch (const std::exception& error) {
    return {internal_error(fmt::format("the database (PostgreSQL): {}", first_line(error.what()))),
            PostgresFault::kOther};
  }
}

namespace {

// Of a connection that is being made.
Status connecting_error() {
  Status status = current_postgres_error().status;
  if (status.code() == StatusCode::kInternal) return {StatusCode::kUnavailable, status.message()};
  return status;
}

}  // namespace

PostgresConnection::PostgresConnection(const std::string& settings)
    : handle_(settings), socket_(::fcntl(handle_.sock(), F_DUPFD_CLOEXEC, 0)) {}

PostgresConnection::~PostgresConnection() {
  if (socket_ >= 0) ::close(socket_);
}

void PostgresConnection::interrupt() {
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

Result<std::unique_ptr<PostgresConnection>> PostgresConnection::connect(const std::string& settings) {
  try {
    std::unique_ptr<PostgresConnection> made(new PostgresConnection(settings));
    if (made->socket_ < 0) return Status(StatusCode::kUnavailable, "the process has no descriptor left");
    return made;
  } catch (...) {
    return connecting_error();
  }
}

Status PostgresConnection::begin(std::int64_t instance, Nanos lock_timeout) {
  try {
// libpqxx would connect again by itself, and forget what is set below.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    handle_.inhibit_reactivation(true);
#pragma GCC diagnostic pop
    handle_.set_client_encoding("UTF8");
    pqxx::nontransaction session(handle_);
    const std::string encoding = session.exec1("SHOW server_encoding")[0].c_str();
    if (encoding != "UTF8") {
      return invalid_argument(
          fmt::format("expected a database of PostgreSQL's in UTF8, found one in {}", encoding));
    }
    // Whatever the server's configuration: a commit is durable. Nothing waits for ever.
    session.exec0("SET synchronous_commit = on");
    session.exec0(fmt::format("SET lock_timeout = {}", lock_timeout / kNanosPerMilli));
    session.exec0("SET statement_timeout = 60000");
    // A server that was paused between two statements keeps others from its rows no longer than they would
    // wait.
    session.exec0(fmt::format("SET idle_in_transaction_session_timeout = {}",
                              std::clamp<Nanos>(2 * lock_timeout / kNanosPerMilli, 2'000, 60'000)));
    session.exec0("SET search_path = loci");
    session.exec(fmt::format("SELECT pg_advisory_lock_shared({})", instance));
    return {};
  } catch (...) {
    return connecting_error();
  }
}

const std::string& PostgresConnection::prepared(std::string_view statement) {
  std::string& name = prepared_[statement];
  if (name.empty()) {
    std::string fresh = fmt::format("loci_{}", prepared_.size());
    handle_.prepare(fresh, std::string(statement));
    name = std::move(fresh);
  }
  return name;
}

Status PostgresSession::fail() {
  PostgresError error = current_postgres_error();
  if (fault_ == PostgresFault::kNone) fault_ = error.fault;
  return std::move(error.status);
}

Result<SqlRows> PostgresSession::run(std::string_view statement,
                                     std::initializer_list<SqlParameter> parameters) {
  try {
    std::vector<TextParameter> texts;
    texts.reserve(parameters.size());
    for (const SqlParameter& parameter : parameters) texts.push_back(to_text(parameter));
    const pqxx::result found = transaction_.exec_prepared(connection_.prepared(statement),
                                                          pqxx::prepare::make_dynamic_params(texts));
    SqlRows rows(found.columns());
    std::vector<pqxx::oid> types;
    for (pqxx::row_size_type column = 0; column < found.columns(); ++column)
      types.push_back(found.column_type(column));
    for (const pqxx::row& row : found) {
      for (pqxx::row_size_type column = 0; column < found.columns(); ++column)
        rows.add(to_value(row[column], types[column]));
    }
    return rows;
  } catch (...) {
    return fail();
  }
}

Result<std::int64_t> PostgresSession::now_seconds() {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows, run("SELECT " LOCI_DATABASE_NOW " / 1000", {}));
  return rows.integer(0, 0);
}

// Two connections rarely have the same number; then one of them waits.
std::int64_t PostgresSession::writer() const { return connection_.handle().backendpid() % 64; }

Status PostgresSession::execute(const std::string& statements) {
  try {
    transaction_.exec(statements);
    return {};
  } catch (...) {
    return fail();
  }
}

}  // namespace loci
