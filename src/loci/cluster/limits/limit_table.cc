// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/limits/limit_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "loci/base/check.h"
#include "loci/cluster/member_table.h"
#include "loci/serve/store/postgres_database.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

constexpr std::int64_t kLimitsLifetimeMs = kMemberLifetime / kNanosPerMilli;
constexpr std::int64_t kLimitsForgottenAfterMs = 60'000;
constexpr std::int64_t kLimitsClearedMax = 1'000;
constexpr std::string_view kLimitSeal = "limits";

// Unlogged: a row is worth a minute, so no commit waits for a disk, and after a crash of the database tenants
// begin anew. Half of each page is left free, so that an update finds room beside the old row.
constexpr const char* kLimitsTables = R"sql(
CREATE UNLOGGED TABLE IF NOT EXISTS tenant_limits (
  tenant TEXT PRIMARY KEY,
  requests_missing BIGINT NOT NULL DEFAULT 0,
  tokens_missing BIGINT NOT NULL DEFAULT 0,
  at BIGINT NOT NULL DEFAULT 0,
  full_at BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE IF NOT EXISTS tenant_places (
  tenant TEXT NOT NULL,
  member TEXT NOT NULL,
  places BIGINT NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (tenant, member)
) WITH (fillfactor = 50);
-- Each member renews its own rows each second.
CREATE INDEX IF NOT EXISTS tenant_places_by_member ON tenant_places (member);
)sql";

// Rows that others have are left out. (Their order, by name, keeps plans of the database alike.)
constexpr std::string_view kLimitsLock = R"sql(
SELECT tenant, requests_missing, tokens_missing, at FROM tenant_limits
WHERE tenant IN (SELECT value FROM json_array_elements_text(CAST($1 AS JSON)))
ORDER BY tenant FOR UPDATE SKIP LOCKED)sql";
constexpr std::string_view kLimitsThere = R"sql(
SELECT tenant FROM tenant_limits WHERE tenant IN (SELECT value FROM json_array_elements_text(CAST($1 AS JSON)))
)sql";
constexpr std::string_view kLimitsMake = R"sql(
INSERT INTO tenant_limits (tenant)
SELECT value FROM json_array_elements_text(CAST($1 AS JSON)) ORDER BY value
ON CONFLICT (tenant) DO NOTHING)sql";
// A statement of its own, after the locks: it sees what those who had them before have committed. A row of a
// time to come was written before the database's clock stepped back: members that live renew theirs.
constexpr std::string_view kLimitsOthers = "SELECT " LOCI_DATABASE_NOW R"sql(,
  CAST(COALESCE((SELECT json_object_agg(tenant, places) FROM (
    SELECT tenant, SUM(places) AS places FROM tenant_places
    WHERE tenant IN (SELECT value FROM json_array_elements_text(CAST($1 AS JSON)))
      AND member <> $2 AND at > )sql" LOCI_DATABASE_NOW " - $3 AND at <= " LOCI_DATABASE_NOW R"sql( + $3
    GROUP BY tenant) AS sums), '{}') AS TEXT))sql";
constexpr std::string_view kLimitsWrite = R"sql(
UPDATE tenant_limits AS old
SET requests_missing = new.requests, tokens_missing = new.tokens, at = new.at, full_at = new.full_at
FROM json_to_recordset(CAST($1 AS JSON))
  AS new (tenant TEXT, requests BIGINT, tokens BIGINT, at BIGINT, full_at BIGINT)
WHERE old.tenant = new.tenant)sql";
constexpr std::string_view kLimitsWritePlaces = R"sql(
INSERT INTO tenant_places (tenant, member, places, at)
SELECT tenant, $2, running, at FROM json_to_recordset(CAST($1 AS JSON))
  AS new (tenant TEXT, running BIGINT, at BIGINT, limited BOOLEAN)
WHERE limited
ON CONFLICT (tenant, member) DO UPDATE SET places = excluded.places, at = excluded.at)sql";

constexpr std::string_view kPlacesRenew =
    "UPDATE tenant_places SET at = " LOCI_DATABASE_NOW " WHERE member = $1 AND places > 0";
constexpr std::string_view kMembersLiving = R"sql(
SELECT COALESCE(MD5(STRING_AGG(id, ',' ORDER BY id)), '') FROM members
WHERE written_at > )sql" LOCI_DATABASE_NOW " - $1 AND written_at <= " LOCI_DATABASE_NOW " + $1";
// Rows that somebody uses are left out, so that no server waits here.
constexpr std::string_view kLimitsClear = R"sql(
DELETE FROM tenant_limits WHERE tenant IN (
  SELECT tenant FROM tenant_limits WHERE full_at < )sql" LOCI_DATABASE_NOW R"sql( - $1
  LIMIT $2 FOR UPDATE SKIP LOCKED))sql";
constexpr std::string_view kPlacesClear = R"sql(
DELETE FROM tenant_places WHERE (tenant, member) IN (
  SELECT tenant, member FROM tenant_places
  WHERE at < )sql" LOCI_DATABASE_NOW " - $1 OR at > " LOCI_DATABASE_NOW R"sql( + $1
  LIMIT $2 FOR UPDATE SKIP LOCKED))sql";

// What a call reads before it counts: the tenants' rows, what runs on other servers, and the database's time.
struct Counting {
  std::map<std::string, TenantUse> rows;         // by the row's name
  std::map<std::string, std::uint32_t> running;  // on other servers, by the row's name
  Nanos now = 0;
};

Result<Counting> read_rows(SqlSession& session, const std::string& names, const std::string& member) {
  Counting out;
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(kLimitsLock, {names}));
  LOCI_ASSIGN_OR_RETURN(const SqlRows others, session.run(kLimitsOthers, {names, member, kLimitsLifetimeMs}));
  out.now = others.integer(0, 0) * kNanosPerMilli;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t at_ms = std::clamp<std::int64_t>(rows.integer(i, 3), 0, others.integer(0, 0));
    out.rows[rows.text(i, 0)] = {.requests_missing = rows.integer(i, 1),
                                 .tokens_missing = rows.integer(i, 2),
                                 .at = at_ms * kNanosPerMilli};
  }
  LOCI_ASSIGN_OR_RETURN(const Json sums, parse_json(others.text(0, 1)));
  for (const auto& [name, places] : sums.items()) {
    if (places.is_number_integer())
      out.running[name] =
          static_cast<std::uint32_t>(std::clamp<std::int64_t>(places.get<std::int64_t>(), 0, UINT32_MAX / 2));
  }
  return out;
}

// Counts one tenant; `use`: that of its row, which becomes the new one's. Returns how many requests of this
// server run.
std::uint32_t count_one(CountedTenant& tenant, std::uint32_t elsewhere, Nanos now, TenantUse& use) {
  use.running = elsewhere + tenant.running;
  TenantMeter meter(tenant.asks.empty() ? tenant.limits : tenant.asks.front().limits, use, now);
  meter.settle(tenant.tokens_taken, tenant.tokens_used, now);
  tenant.answers.clear();
  for (const LimitAsk& ask : tenant.asks) {
    std::optional<LimitReached> reached;
    if (ask.tokens)
      reached = meter.take_tokens(ask.limits, ask.tokens->prompt, ask.tokens->all, now);
    else if (ask.attempt == LimitAsk::Attempt::kMoved)
      meter.begin_again(ask.limits, now);
    else
      reached = meter.begin(ask.limits, now);
    tenant.answers.push_back({.reached = reached, .state = meter.state(ask.limits, now)});
  }
  use = meter.use(now);
  return use.running - elsewhere;
}

// When nothing is missing any more, in milliseconds.
std::int64_t full_at(const TenantUse& use, const TenantLimits& limits) {
  const auto after = [](std::int64_t missing, const std::optional<std::uint32_t>& limit) {
    return limit ? missing / *limit + 1 : 0;
  };
  return use.at / kNanosPerMilli + std::max(after(use.requests_missing, limits.requests_per_minute),
                                            after(use.tokens_missing, limits.tokens_per_minute));
}

std::string names_of(const std::map<std::string, CountedTenant*>& tenants) {
  Json names = Json::array();
  for (const auto& [name, tenant] : tenants) names.push_back(name);
  return dump_json(names);
}

}  // namespace

LimitTable::LimitTable(std::unique_ptr<PostgresDatabase> database, const MemberKey& key, std::string member)
    : database_(std::move(database)), key_(key), member_(std::move(member)) {}
LimitTable::~LimitTable() = default;

Result<std::unique_ptr<LimitTable>> LimitTable::open(const std::string& url, const MemberKey& key,
                                                     std::string member) {
  LOCI_ASSIGN_OR_RETURN(
      std::unique_ptr<PostgresDatabase> database,
      PostgresDatabase::open(url, {.lock_timeout = kLimitPatience, .answer_timeout = kLimitPatience}));
  LOCI_RETURN_IF_ERROR(database->make_tables(kLimitsTables));
  return std::unique_ptr<LimitTable>(new LimitTable(std::move(database), key, std::move(member)));
}

std::string LimitTable::name_of(const std::string& tenant) const { return seal(key_, kLimitSeal, tenant); }

Status LimitTable::make_rows(const Tenants& tenants) {
  const std::string names = names_of(tenants);
  return database_->transact(SqlAccess::kRows,
                             [&](SqlSession& session) { return session.run(kLimitsMake, {names}).status(); });
}

Result<LimitTable::Tenants> LimitTable::count_free(const Tenants& tenants) {
  const std::string names = names_of(tenants);
  Tenants counted, missing;
  const auto body = [&](SqlSession& session) -> Status {
    counted.clear();
    missing.clear();
    LOCI_ASSIGN_OR_RETURN(Counting counting, read_rows(session, names, member_));
    if (counting.rows.size() < tenants.size()) {
      missing = tenants;
      LOCI_ASSIGN_OR_RETURN(const SqlRows there, session.run(kLimitsThere, {names}));
      for (std::size_t i = 0; i < there.size(); ++i) missing.erase(there.text(i, 0));
    }
    if (counting.rows.empty()) return {};
    Json written = Json::array();
    for (auto& [name, use] : counting.rows) {
      CountedTenant& tenant = *counted.emplace(name, tenants.at(name)).first->second;
      const std::uint32_t running = count_one(tenant, counting.running[name], counting.now, use);
      written.push_back({{"tenant", name},
                         {"requests", use.requests_missing},
                         {"tokens", use.tokens_missing},
                         {"at", use.at / kNanosPerMilli},
                         {"full_at", full_at(use, tenant.limits)},
                         {"running", running},
                         {"limited", tenant.limits.concurrent_requests.has_value()}});
    }
    const std::string text = dump_json(written);
    LOCI_RETURN_IF_ERROR(session.run(kLimitsWrite, {text}).status());
    return session.run(kLimitsWritePlaces, {text, member_}).status();
  };
  LOCI_RETURN_IF_ERROR(database_->transact(SqlAccess::kRows, body));
  for (const auto& [name, tenant] : counted) tenant->is_counted = true;
  return missing;
}

Status LimitTable::count(std::vector<CountedTenant>& tenants) {
  LOCI_CHECK(tenants.size() <= kCountedMax, "as many tenants as one statement takes");
  Tenants left;
  for (CountedTenant& tenant : tenants) {
    tenant.is_counted = false;
    left[name_of(tenant.tenant)] = &tenant;
  }
  LOCI_CHECK(left.size() == tenants.size(), "each tenant once");
  // The rows of tenants that come for the first time are made in a transaction of their own: one that holds
  // locks makes no rows, so that no two servers wait for each other. A few times, because rows may be cleared
  // between the two.
  for (int i = 0; i < 4; ++i) {
    LOCI_ASSIGN_OR_RETURN(left, count_free(left));
    if (left.empty()) return {};
    LOCI_RETURN_IF_ERROR(make_rows(left));
  }
  return {StatusCode::kUnavailable, "rows of tenants' limits are deleted as soon as they are made"};
}

Result<std::uint32_t> LimitTable::renew() {
  const auto body = [&](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(session.run(kPlacesRenew, {member_}).status());
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(kMembersLiving, {kLimitsLifetimeMs}));
    if (rows.text(0, 0) == living_) return {};
    // Somebody came or left. Which rows are of this cluster only their seals say.
    LOCI_ASSIGN_OR_RETURN(const MemberList list, read_members(session, key_));
    members_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(list.members.size(), 1, UINT16_MAX));
    living_ = rows.text(0, 0);
    return {};
  };
  LOCI_RETURN_IF_ERROR(database_->transact(SqlAccess::kRows, body));
  return members_;
}

Status LimitTable::leave() {
  return database_->transact(SqlAccess::kRows, [&](SqlSession& session) {
    return session.run("DELETE FROM tenant_places WHERE member = $1", {member_}).status();
  });
}

Status LimitTable::clear() {
  return database_->transact(SqlAccess::kRows, [&](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(session.run(kLimitsClear, {kLimitsForgottenAfterMs, kLimitsClearedMax}).status());
    return session.run(kPlacesClear, {kLimitsForgottenAfterMs, kLimitsClearedMax}).status();
  });
}

void LimitTable::abandon() { database_->abandon(); }

}  // namespace loci
