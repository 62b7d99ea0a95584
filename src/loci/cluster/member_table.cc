// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/member_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/serve/store/postgres_database.h"

namespace loci {
namespace {

constexpr std::int64_t kRowsMax = 4'096;
constexpr std::int64_t kForgottenAfterMs = 600'000;
constexpr std::string_view kMemberSeal = "member", kDrainSeal = "drain";

// Columns: id, body (write_member()), its seal, the seal of the wish that it drain (or empty), and when it
// was written, for those who clear away what is old.
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS members (
  id TEXT PRIMARY KEY,
  body TEXT NOT NULL,
  seal TEXT NOT NULL,
  drain TEXT NOT NULL DEFAULT '',
  written_at BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS member_joins (
  one BIGINT PRIMARY KEY,
  joins BIGINT NOT NULL
);
)sql";

// Those that are believed, by id.
struct SealedRows {
  std::vector<Member> living, old;
  std::uint32_t refused = 0;
};

Result<SealedRows> read_rows(SqlSession& session, const MemberKey& key, std::int64_t lifetime_ms) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("SELECT id, body, seal, " LOCI_DATABASE_NOW
                                    " FROM members WHERE OCTET_LENGTH(body) <= $1 ORDER BY id LIMIT $2",
                                    {static_cast<std::int64_t>(kMemberBytesMax), kRowsMax}));
  SealedRows out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_ours = is_sealed(key, kMemberSeal, rows.text(i, 1), rows.text(i, 2));
    Result<SaidMember> said = is_ours ? read_member(rows.text(i, 1))
                                      : invalid_argument("expected a row sealed with this cluster's secret");
    if (!said.ok() || said->member.id != rows.text(i, 0)) {
      ++out.refused;
      continue;
    }
    const std::int64_t age_ms = rows.integer(i, 3) - said->at_ms;
    const bool lives = age_ms <= lifetime_ms && age_ms >= -lifetime_ms;
    (lives ? out.living : out.old).push_back(std::move(said->member));
  }
  return out;
}

MemberList to_list(SealedRows rows) {
  MemberList out{.members = std::move(rows.living), .old = {}, .refused = rows.refused};
  for (Member& member : rows.old) out.old.push_back(std::move(member.id));
  return out;
}

}  // namespace

Result<MemberList> read_members(SqlSession& session, const MemberKey& key) {
  LOCI_ASSIGN_OR_RETURN(SealedRows rows, read_rows(session, key, kMemberLifetime / kNanosPerMilli));
  return to_list(std::move(rows));
}

MemberTable::MemberTable(std::unique_ptr<PostgresDatabase> database, const MemberKey& key, Nanos lifetime)
    : database_(std::move(database)), key_(key), lifetime_ms_(lifetime / kNanosPerMilli) {}
MemberTable::~MemberTable() = default;

Result<std::unique_ptr<MemberTable>> MemberTable::open(const std::string& url, const MemberKey& key,
                                                       const MemberTableOptions& options) {
  const Nanos timeout = options.answer_timeout;
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<PostgresDatabase> database,
                        PostgresDatabase::open(url, {.lock_timeout = timeout, .answer_timeout = timeout}));
  LOCI_RETURN_IF_ERROR(database->make_tables(kTables));
  return std::unique_ptr<MemberTable>(new MemberTable(std::move(database), key, options.lifetime));
}

Result<std::int64_t> MemberTable::now_ms() {
  std::int64_t now = 0;
  const Status done = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run("SELECT " LOCI_DATABASE_NOW, {}));
    now = rows.integer(0, 0);
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return now;
}

Result<MemberRenewal> MemberTable::write(SqlSession& session, const Member& member,
                                         std::int64_t at_ms) const {
  const std::string body = write_member(member, at_ms);
  const std::string mark = seal(key_, kMemberSeal, body);
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("INSERT INTO members (id, body, seal, written_at) VALUES ($1, $2, $3, " LOCI_DATABASE_NOW
                  ") ON CONFLICT (id) DO UPDATE SET body = excluded.body, seal = excluded.seal, "
                  "written_at = excluded.written_at RETURNING drain, " LOCI_DATABASE_NOW,
                  {member.id, body, mark}));
  return MemberRenewal{.now_ms = rows.integer(0, 1),
                       .is_asked_to_drain = is_sealed(key_, kDrainSeal, member.id, rows.text(0, 0))};
}

Result<bool> MemberTable::has_row(SqlSession& session, const Member& member) const {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("SELECT body, seal FROM members "
                                    "WHERE id = $1 AND OCTET_LENGTH(body) <= $2 FOR UPDATE",
                                    {member.id, static_cast<std::int64_t>(kMemberBytesMax)}));
  if (rows.empty() || !is_sealed(key_, kMemberSeal, rows.text(0, 0), rows.text(0, 1))) return false;
  const Result<SaidMember> said = read_member(rows.text(0, 0));
  return said.ok() && said->member.id == member.id && check_alike(member, said->member).ok() &&
         said->member.models == member.models;
}

Result<MemberRenewal> MemberTable::write_checked(SqlSession& session, const Member& member,
                                                 std::optional<std::int64_t> at_ms) const {
  // Those who join at the same time write this row, so that each sees the one before.
  LOCI_ASSIGN_OR_RETURN(const SqlRows turn,
                        session.run("INSERT INTO member_joins (one, joins) VALUES (1, 1) ON CONFLICT (one) "
                                    "DO UPDATE SET joins = member_joins.joins + 1 "
                                    "RETURNING " LOCI_DATABASE_NOW,
                                    {}));
  LOCI_ASSIGN_OR_RETURN(const SqlRows cleared,
                        session.run("DELETE FROM members WHERE written_at < $1 RETURNING id",
                                    {turn.integer(0, 0) - kForgottenAfterMs}));
  LOCI_ASSIGN_OR_RETURN(const SealedRows others, read_rows(session, key_, lifetime_ms_));
  for (const Member& other : others.living) {
    if (other.id != member.id) LOCI_RETURN_IF_ERROR(check_alike(member, other));
  }
  for (const Member& other : others.old) {
    if (other.id == member.id || check_alike(member, other).ok()) continue;
    LOCI_RETURN_IF_ERROR(session.run("DELETE FROM members WHERE id = $1", {other.id}).status());
  }
  return write(session, member, at_ms.value_or(turn.integer(0, 0)));
}

Result<MemberRenewal> MemberTable::join(const Member& member) {
  MemberRenewal renewal;
  const Status done = database_->transact(SqlAccess::kWrite, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(renewal, write_checked(session, member, std::nullopt));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return renewal;
}

Result<MemberRenewal> MemberTable::renew(const Member& member, std::int64_t at_ms) {
  MemberRenewal renewal;
  const Status done = database_->transact(SqlAccess::kWrite, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const bool is_there, has_row(session, member));
    LOCI_ASSIGN_OR_RETURN(renewal,
                          is_there ? write(session, member, at_ms) : write_checked(session, member, at_ms));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return renewal;
}

Status MemberTable::leave(const std::string& id) {
  return database_->transact(SqlAccess::kWrite, [&](SqlSession& session) {
    return session.run("DELETE FROM members WHERE id = $1", {id}).status();
  });
}

void MemberTable::abandon() { database_->abandon(); }

Result<MemberList> MemberTable::list() {
  MemberList out;
  const Status done = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(SealedRows rows, read_rows(session, key_, lifetime_ms_));
    out = to_list(std::move(rows));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return out;
}

Result<std::vector<std::string>> MemberTable::ended_stores() {
  std::vector<std::string> out;
  const Status done = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    out.clear();
    // Who writes a row says when, and is believed by the seal alone; this finds the few that it may be.
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows rows,
        session.run("SELECT body, seal, " LOCI_DATABASE_NOW
                    " FROM members WHERE OCTET_LENGTH(body) <= $1 AND written_at < " LOCI_DATABASE_NOW
                    " - $2 ORDER BY id LIMIT $3",
                    {static_cast<std::int64_t>(kMemberBytesMax), lifetime_ms_, kRowsMax}));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!is_sealed(key_, kMemberSeal, rows.text(i, 0), rows.text(i, 1))) continue;
      Result<SaidMember> said = read_member(rows.text(i, 0));
      if (said.ok() && !said->member.store.empty() && rows.integer(i, 2) - said->at_ms > lifetime_ms_)
        out.push_back(std::move(said->member.store));
    }
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return out;
}

Status MemberTable::ask_to_drain(const std::string& id, bool drain) {
  const std::string wish = drain ? seal(key_, kDrainSeal, id) : std::string();
  return database_->transact(SqlAccess::kWrite, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const SealedRows rows, read_rows(session, key_, lifetime_ms_));
    const bool lives = std::ranges::any_of(rows.living, [&](const Member& one) { return one.id == id; });
    if (!lives)
      return not_found(
          fmt::format("no member '{}' is running; `loci cluster` lists those that are", id.substr(0, 64)));
    return session.run("UPDATE members SET drain = $2 WHERE id = $1", {id, wish}).status();
  });
}

}  // namespace loci
