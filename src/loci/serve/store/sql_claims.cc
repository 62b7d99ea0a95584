// SPDX-License-Identifier: Apache-2.0
// Claims of turns: rows that a lease of the database's clock ends, or their holder's end, or the commit of
// the turn itself. A claim is its holder and a number that the holder never gives twice, so a claim that was
// lost is never mistaken for a later one.
#include "loci/serve/store/postgres_database.h"
#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/store/stored_text.h"

namespace loci {

using namespace store_rows;

namespace {

// Claims of servers that ended stay that long where nobody took them over, and then go with the next one's
// renewal.
constexpr std::int64_t kForgottenAfterMs = 3'600'000;

// As PostgreSQL writes an array.
std::string array_text(const std::vector<std::int64_t>& numbers) {
  std::string out = "{";
  for (const std::int64_t number : numbers) {
    if (out.size() > 1) out += ',';
    out += std::to_string(number);
  }
  return out + '}';
}

bool is_shared(const SqlDatabase& database) { return database.dialect() == SqlDialect::kPostgres; }

}  // namespace

Result<bool> store_rows::end_claim(SqlSession& session, std::string_view tenant,
                                   std::string_view conversation, std::string_view holder,
                                   std::int64_t claim) {
  // A row that is deleted conflicts with whoever takes it over at the same time: one of both is run again.
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("DELETE FROM turn_claims WHERE tenant = $1 AND conversation = $2 "
                                    "AND holder = $3 AND claim = $4 RETURNING claim",
                                    {tenant, conversation, holder, claim}));
  return rows.size() == 1;
}

Result<std::optional<std::int64_t>> SqlStore::claim_turn(std::string_view tenant,
                                                         std::string_view conversation) {
  if (!is_shared(*database_)) return std::optional<std::int64_t>(0);
  LOCI_RETURN_IF_ERROR(check_stored_id(tenant, "tenant"));
  LOCI_RETURN_IF_ERROR(check_stored_id(conversation, "conversation"));
  const std::string holder = database_->instance();
  const std::int64_t claim = claims_.fetch_add(1) + 1;
  const std::int64_t lease_ms = options_.turn_lease / kNanosPerMilli;
  bool is_taken = false;
  const Status done = database_->transact(SqlAccess::kWrite, [&](SqlSession& session) -> Status {
    is_taken = false;
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows rows,
        session.run("SELECT holder, CASE WHEN expires_at > " LOCI_DATABASE_NOW " THEN 1 ELSE 0 END, "
                    "CASE WHEN " LOCI_DATABASE_STARTED " + $3 < " LOCI_DATABASE_NOW
                    " THEN 1 ELSE 0 END FROM turn_claims WHERE tenant = $1 AND conversation = $2",
                    {tenant, conversation, lease_ms}));
    if (!rows.empty() && rows.text(0, 0) != holder && rows.integer(0, 1) == 1) {
      // A start of the database ends all connections. Within a lease of it, holders that live have had no
      // reason yet to make one anew, and their claims hold.
      is_taken = rows.integer(0, 2) == 0;
      if (is_taken) return {};
      LOCI_ASSIGN_OR_RETURN(const bool has_ended, database_->has_ended(session, rows.text(0, 0)));
      is_taken = !has_ended;
      if (is_taken) return {};
    }
    return session
        .run(
            "INSERT INTO turn_claims (tenant, conversation, holder, claim, expires_at) "
            "VALUES ($1, $2, $3, $4, " LOCI_DATABASE_NOW
            " + $5) ON CONFLICT (tenant, conversation) "
            "DO UPDATE SET holder = excluded.holder, claim = excluded.claim, "
            "expires_at = excluded.expires_at",
            {tenant, conversation, holder, claim, lease_ms})
        .status();
  });
  LOCI_RETURN_IF_ERROR(done);
  return is_taken ? std::nullopt : std::optional<std::int64_t>(claim);
}

Status SqlStore::release_turn(std::string_view tenant, std::string_view conversation, std::int64_t claim) {
  if (claim == 0) return {};
  const std::string holder = database_->instance();
  return database_->transact(SqlAccess::kWrite, [&](SqlSession& session) {
    return end_claim(session, tenant, conversation, holder, claim).status();
  });
}

Status SqlStore::renew_claims(const std::vector<std::int64_t>& held) {
  if (!is_shared(*database_)) return {};
  const std::string holder = database_->instance();
  const std::string numbers = array_text(held);
  const std::int64_t lease_ms = options_.turn_lease / kNanosPerMilli;
  // A row that is locked is being ended or taken over. Who waited for it would let the others run out.
  const auto renew = [&](SqlSession& session) {
    return session
        .run(
            "WITH mine AS MATERIALIZED (SELECT tenant, conversation FROM turn_claims WHERE holder = $1 "
            "AND claim = ANY(CAST($2 AS BIGINT[])) FOR UPDATE SKIP LOCKED) "
            "UPDATE turn_claims AS one SET expires_at = " LOCI_DATABASE_NOW
            " + $3 FROM mine WHERE one.tenant = mine.tenant AND one.conversation = mine.conversation",
            {holder, numbers, lease_ms})
        .status();
  };
  // Not one that has only just been made, of which `held` may not know yet: that has not run out.
  const auto clear = [&](SqlSession& session) {
    return session
        .run(
            "WITH gone AS MATERIALIZED (SELECT tenant, conversation FROM turn_claims WHERE "
            "(holder = $1 AND claim <> ALL(CAST($2 AS BIGINT[])) AND expires_at < " LOCI_DATABASE_NOW
            ") OR expires_at < " LOCI_DATABASE_NOW
            " - $3 FOR UPDATE SKIP LOCKED) DELETE FROM turn_claims AS one USING gone "
            "WHERE one.tenant = gone.tenant AND one.conversation = gone.conversation",
            {holder, numbers, kForgottenAfterMs})
        .status();
  };
  if (!held.empty()) LOCI_RETURN_IF_ERROR(database_->transact(SqlAccess::kRows, renew));
  return database_->transact(SqlAccess::kRows, clear);
}

}  // namespace loci
