// SPDX-License-Identifier: Apache-2.0
// What is done to everything: at start, from time to time, and for people.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

using namespace store_rows;

namespace {

// What is believed of the clock is kept as often as it has gone on by so many seconds.
constexpr std::int64_t kBelievedEvery = 60;
// One call of expire() deletes at most so many batches, a transaction each: turns are committed in between.
constexpr int kBatches = 8;
constexpr std::int64_t kThreadsInBatch = 32;
// After these the call erases at most so many parts of large threads (SqlEraser).
constexpr int kErasedParts = 8;

// The response object of one that its server did not finish.
std::string failed_json(std::string_view json) {
  Json object = json_or_null(json);
  if (!object.is_object()) return std::string(json);
  object["status"] = "failed";
  object["error"] = {{"code", "server_error"},
                     {"message", "the server ended before the response was finished"}};
  return dump_json(object);
}

Result<std::optional<ExpiryClock::Kept>> read_expiry_clock(SqlSession& session) {
  using Kept = std::optional<ExpiryClock::Kept>;
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT believed_at, doubted_at, steady_seconds FROM expiry_clock WHERE one = 1", {}));
  if (rows.empty()) return Kept();
  ExpiryClock::Kept kept{.believed_seconds = rows.integer(0, 0), .doubt = {}};
  if (!rows.is_null(0, 1))
    kept.doubt = {.clock_seconds = rows.integer(0, 1), .steady_seconds = rows.integer(0, 2)};
  return Kept(kept);
}

Status write_expiry_clock(SqlSession& session, const ExpiryClock::Kept& kept) {
  const ExpiryClock::Doubt doubt = kept.doubt.value_or(ExpiryClock::Doubt());
  return session
      .run(
          "INSERT INTO expiry_clock (one, believed_at, doubted_at, steady_seconds) VALUES (1, $1, $2, $3) "
          "ON CONFLICT (one) DO UPDATE SET believed_at = excluded.believed_at, "
          "doubted_at = excluded.doubted_at, steady_seconds = excluded.steady_seconds",
          {kept.believed_seconds, kept.doubt ? SqlParameter(doubt.clock_seconds) : SqlParameter(SqlNull{}),
           doubt.steady_seconds})
      .status();
}

// For a database that servers share: an older one beside this does not count. Reads the index of items, and
// writes only where a count is wrong.
Status recount_items(SqlDatabase& database) {
  std::vector<std::int64_t> wrong;
  LOCI_RETURN_IF_ERROR(database.transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    wrong.clear();
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows rows,
        session.run("SELECT conversations.conversation FROM conversations LEFT JOIN "
                    "(SELECT conversation, COUNT(*) AS counted FROM items WHERE conversation IS NOT NULL "
                    "GROUP BY conversation) AS counts "
                    "ON counts.conversation = conversations.conversation "
                    "WHERE conversations.tenant <> '' AND conversations.items <> COALESCE(counts.counted, 0)",
                    {}));
    for (std::size_t i = 0; i < rows.size(); ++i) wrong.push_back(rows.integer(i, 0));
    return {};
  }));
  for (const std::int64_t conversation : wrong) {
    LOCI_RETURN_IF_ERROR(database.transact(SqlAccess::kWrite, [&](SqlSession& session) {
      return session
          .run(
              "UPDATE conversations SET items = "
              "(SELECT COUNT(*) FROM items WHERE items.conversation = $1) WHERE conversation = $1",
              {conversation})
          .status();
    }));
  }
  return {};
}

bool is_worth_keeping(const ExpiryClock::Kept& kept, const std::optional<ExpiryClock::Kept>& before) {
  return !before || kept.doubt != before->doubt ||
         std::abs(kept.believed_seconds - before->believed_seconds) >= kBelievedEvery;
}

Result<std::uint64_t> fail_those_of(SqlSession& session, std::string_view owner) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("SELECT response, thread, json, size_bytes FROM responses "
                                    "WHERE owner = $1 AND status IN ('in_progress', 'queued')",
                                    {owner}));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string json = failed_json(rows.text(i, 2));
    const std::int64_t size = rows.integer(i, 3) - static_cast<std::int64_t>(rows.text(i, 2).size()) +
                              static_cast<std::int64_t>(json.size());
    LOCI_RETURN_IF_ERROR(session
                             .run("UPDATE responses SET status = 'failed', owner = '', json = $1, "
                                  "size_bytes = $2 WHERE response = $3",
                                  {json, size, rows.integer(i, 0)})
                             .status());
    LOCI_RETURN_IF_ERROR(settle_thread(session, rows.integer(i, 1), size - rows.integer(i, 3)));
  }
  return rows.size();
}

// Deletes a batch of the threads `oldest` (thread, active_at, size_bytes), up to the first that `goes` lets
// stay.
template <class Goes>
Result<std::uint64_t> delete_batch(SqlSession& session, const SqlRows& oldest, const Goes& goes) {
  std::uint64_t gone = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < oldest.size() && goes(i); ++i) {
    bytes += oldest.integer(i, 2);
    if (i > 0 && bytes > kDeletedAtOnceBytes) break;
    LOCI_ASSIGN_OR_RETURN(const DeletedThread deleted, delete_thread(session, oldest.integer(i, 0)));
    gone += deleted.gone;
  }
  return gone;
}

// A batch of the threads of one tenant that gives.
Result<std::uint64_t> take_from(SqlSession& session, const std::string& tenant, StoreSurplus surplus) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows oldest,
                        session.run("SELECT thread, active_at, size_bytes FROM threads WHERE tenant = $1 "
                                    "ORDER BY active_at, thread LIMIT $2",
                                    {tenant, kThreadsInBatch}));
  return delete_batch(session, oldest, [&](std::size_t i) {
    if (surplus.bytes == 0 && surplus.threads == 0) return false;
    surplus.bytes -= std::min(surplus.bytes, static_cast<std::uint64_t>(oldest.integer(i, 2)));
    surplus.threads -= std::min<std::uint64_t>(surplus.threads, 1);
    return true;
  });
}

}  // namespace

std::string SqlStore::server() const {
  return database_->dialect() == SqlDialect::kPostgres ? database_->instance() : std::string();
}

Result<std::uint64_t> SqlStore::fail_interrupted(const std::vector<std::string>& ended,
                                                 const ConfirmEnded& confirm) {
  const auto is_silent = [&](const std::string& owner) {
    return std::find(ended.begin(), ended.end(), owner) != ended.end();
  };
  std::vector<std::string> owners;
  const Status listed = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    owners.clear();
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run("SELECT DISTINCT owner FROM responses "
                                                          "WHERE status IN ('in_progress', 'queued')",
                                                          {}));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::string owner = rows.text(i, 0);
      if (owner == server()) continue;
      bool seems_ended = is_silent(owner);
      if (!seems_ended) {
        LOCI_ASSIGN_OR_RETURN(seems_ended, database_->seems_ended(session, owner));
      }
      if (seems_ended) owners.push_back(std::move(owner));
    }
    return {};
  });
  LOCI_RETURN_IF_ERROR(listed);
  if (confirm) owners = confirm(std::move(owners));
  std::uint64_t failed = 0;
  for (const std::string& owner : owners) {
    std::uint64_t of_owner = 0;
    // A transaction for each, as their number is unknown and each holds its owner's lock.
    const Status done = database_->transact(SqlAccess::kWrite, [&](SqlSession& session) -> Status {
      of_owner = 0;
      if (!is_silent(owner)) {
        LOCI_ASSIGN_OR_RETURN(const bool still_ended, database_->has_ended(session, owner));
        if (!still_ended) return {};
      }
      LOCI_ASSIGN_OR_RETURN(of_owner, fail_those_of(session, owner));
      return {};
    });
    LOCI_RETURN_IF_ERROR(done);
    failed += of_owner;
  }
  return failed;
}

Result<std::uint64_t> SqlStore::recount_usage() {
  std::vector<std::string> wrong;
  const Status looked = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(wrong, tenants_miscounted(session));
    return {};
  });
  LOCI_RETURN_IF_ERROR(looked);
  // A transaction for each, so that other servers' turns of other tenants are none of its conflicts.
  for (const std::string& tenant : wrong) {
    LOCI_RETURN_IF_ERROR(database_->transact(SqlAccess::kWrite,
                                             [&](SqlSession& session) { return recount(session, tenant); }));
  }
  if (database_->dialect() == SqlDialect::kPostgres) LOCI_RETURN_IF_ERROR(recount_items(*database_));
  return wrong.size();
}

// Deletes a batch of what is over a limit: what is too old first, then of the first tenant that is over its
// own quota or its share of the whole.
Result<std::uint64_t> SqlStore::expire_batch(SqlSession& session, std::int64_t now,
                                             const StoreLimits& limits) const {
  if (limits.age_seconds_max) {
    LOCI_ASSIGN_OR_RETURN(const SqlRows oldest,
                          session.run("SELECT thread, active_at, size_bytes FROM threads "
                                      "WHERE tenant <> '' ORDER BY active_at, thread LIMIT $1",
                                      {kThreadsInBatch}));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t gone, delete_batch(session, oldest, [&](std::size_t i) {
                            return now - oldest.integer(i, 1) > *limits.age_seconds_max;
                          }));
    if (gone > 0) return gone;
  }
  if (!limits.bytes_max && !options_.quota_of) return std::uint64_t{0};
  LOCI_ASSIGN_OR_RETURN(const std::vector<StoreUsage> usages, all_usage(session));
  const std::uint64_t level = limits.bytes_max ? share_level(usages, *limits.bytes_max) : UINT64_MAX;
  for (const StoreUsage& usage : usages) {
    StoreQuota quota = quota_of(usage.tenant);
    quota.bytes_max = std::min(level, quota.bytes_max.value_or(UINT64_MAX));
    const StoreSurplus surplus = surplus_over(usage, quota);
    if (surplus == StoreSurplus()) continue;
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t gone, take_from(session, usage.tenant, surplus));
    if (gone > 0) return gone;
  }
  return std::uint64_t{0};
}

Result<ExpiryTime> SqlStore::expiry_time(std::int64_t age_seconds_max) {
  std::int64_t now = 0;
  std::optional<ExpiryClock::Kept> kept;
  const Status read = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(now, now_seconds(session));
    LOCI_ASSIGN_OR_RETURN(kept, read_expiry_clock(session));
    return {};
  });
  LOCI_RETURN_IF_ERROR(read);
  ExpiryClock::Verdict verdict;
  {
    const MutexLock lock(expiry_mutex_);
    verdict = expiry_clock_.look(now, uptime_.now(), age_seconds_max, kept);
  }
  if (is_worth_keeping(verdict.kept, kept)) {
    LOCI_RETURN_IF_ERROR(database_->transact(
        SqlAccess::kUpkeep, [&](SqlSession& session) { return write_expiry_clock(session, verdict.kept); }));
  }
  return ExpiryTime{.now_seconds = verdict.now_seconds, .is_doubted = verdict.is_doubted};
}

Result<StoreExpiry> SqlStore::expire(std::int64_t now_seconds, const StoreLimits& limits) {
  std::uint64_t gone = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    std::uint64_t deleted = 0;
    const Status done = database_->transact(SqlAccess::kUpkeep, [&](SqlSession& session) -> Status {
      LOCI_ASSIGN_OR_RETURN(deleted, expire_batch(session, now_seconds, limits));
      return {};
    });
    LOCI_RETURN_IF_ERROR(done);
    if (deleted == 0) break;
    gone += deleted;
  }
  LOCI_ASSIGN_OR_RETURN(const bool is_left, eraser_.erase_oldest(kErasedParts));
  LOCI_RETURN_IF_ERROR(database_->reclaim());
  return StoreExpiry{.gone = gone, .has_more = gone > 0 || is_left};
}

Result<std::uint64_t> SqlStore::size_bytes() {
  std::uint64_t total = 0;
  const Status done = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const std::vector<StoreUsage> usages, all_usage(session));
    total = 0;
    for (const StoreUsage& usage : usages) total += usage.bytes;
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  return total;
}

Result<std::vector<TenantStats>> SqlStore::stats() {
  std::map<std::string, TenantStats> tenants;
  const Status done = database_->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
    tenants.clear();
    LOCI_ASSIGN_OR_RETURN(const SqlRows threads,
                          session.run("SELECT tenant, CAST(SUM(size_bytes) AS BIGINT), MIN(active_at), "
                                      "MAX(active_at) FROM threads WHERE tenant <> '' GROUP BY tenant",
                                      {}));
    for (std::size_t i = 0; i < threads.size(); ++i) {
      tenants[threads.text(i, 0)] = {.tenant = threads.text(i, 0),
                                     .size_bytes = static_cast<std::uint64_t>(threads.integer(i, 1)),
                                     .oldest_active_at = threads.integer(i, 2),
                                     .newest_active_at = threads.integer(i, 3)};
    }
    const auto count = [&](std::string_view statement, std::uint64_t TenantStats::* field) -> Status {
      LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(statement, {}));
      for (std::size_t i = 0; i < rows.size(); ++i)
        tenants[rows.text(i, 0)].*field = static_cast<std::uint64_t>(rows.integer(i, 1));
      return {};
    };
    LOCI_RETURN_IF_ERROR(
        count("SELECT tenant, COUNT(*) FROM conversations WHERE tenant <> '' GROUP BY tenant",
              &TenantStats::conversations));
    LOCI_RETURN_IF_ERROR(
        count("SELECT threads.tenant, COUNT(*) FROM responses JOIN threads "
              "ON threads.thread = responses.thread WHERE threads.tenant <> '' GROUP BY threads.tenant",
              &TenantStats::responses));
    return count(
        "SELECT threads.tenant, COUNT(*) FROM items JOIN threads "
        "ON threads.thread = items.thread WHERE threads.tenant <> '' GROUP BY threads.tenant",
        &TenantStats::items);
  });
  LOCI_RETURN_IF_ERROR(done);
  std::vector<TenantStats> all;
  for (auto& [name, tenant] : tenants) all.push_back(std::move(tenant));
  return all;
}

}  // namespace loci
