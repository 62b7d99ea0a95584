// SPDX-License-Identifier: Apache-2.0
// What each tenant has in the store, counted as it changes, so that nobody reads all rows to know it. A
// tenant has one row for each writer that works in parallel: else all its transactions would wait for one
// row.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/units.h"
#include "loci/serve/store/sql_rows.h"

namespace loci::store_rows {
namespace {

// One write makes room by at most so many threads: the rest is the next write's, or expiry's.
constexpr int kThreadsMadeRoomBy = 64;

StoreUsage to_usage(const SqlRows& rows, std::size_t row, std::string tenant) {
  const auto whole = [&](std::size_t column) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(rows.integer(row, column), 0));
  };
  return {.tenant = std::move(tenant), .threads = whole(0), .bytes = whole(1)};
}

bool is_over(const StoreSurplus& surplus) { return surplus.bytes > 0 || surplus.threads > 0; }

Status too_large(const StoreUsage& usage, const StoreQuota& quota) {
  if (quota.bytes_max && usage.bytes > *quota.bytes_max) {
    return invalid_argument(fmt::format(
        "this tenant may store {} (stored_bytes); this conversation alone would take {}: begin another "
        "one, or store less (store: false)",
        format_bytes(*quota.bytes_max), format_bytes(usage.bytes)));
  }
  return {};
}

}  // namespace

Status count_usage(SqlSession& session, std::string_view tenant, std::int64_t threads, std::int64_t bytes) {
  if (threads == 0 && bytes == 0) return {};
  return session
      .run(
          "INSERT INTO tenant_usage (tenant, writer, threads, size_bytes) VALUES ($1, $2, $3, $4) "
          "ON CONFLICT (tenant, writer) DO UPDATE SET threads = tenant_usage.threads + excluded.threads, "
          "size_bytes = tenant_usage.size_bytes + excluded.size_bytes",
          {tenant, session.writer(), threads, bytes})
      .status();
}

Result<StoreUsage> usage_of(SqlSession& session, std::string_view tenant) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT CAST(COALESCE(SUM(threads), 0) AS BIGINT), "
                  "CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM tenant_usage WHERE tenant = $1",
                  {tenant}));
  return to_usage(rows, 0, std::string(tenant));
}

Result<std::vector<StoreUsage>> all_usage(SqlSession& session) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT CAST(SUM(threads) AS BIGINT), CAST(SUM(size_bytes) AS BIGINT), tenant "
                  "FROM tenant_usage WHERE tenant <> '' GROUP BY tenant ORDER BY tenant",
                  {}));
  std::vector<StoreUsage> usages;
  usages.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) usages.push_back(to_usage(rows, i, rows.text(i, 2)));
  return usages;
}

// (A sum that is 0 and no row are the same: what was deleted leaves its row.)
Result<std::vector<std::string>> tenants_miscounted(SqlSession& session) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT tenant FROM (SELECT tenant, 1 AS threads, size_bytes FROM threads "
                  "UNION ALL SELECT tenant, -threads, -size_bytes FROM tenant_usage) AS both_counts "
                  "GROUP BY tenant HAVING SUM(threads) <> 0 OR SUM(size_bytes) <> 0 ORDER BY tenant",
                  {}));
  std::vector<std::string> tenants;
  for (std::size_t i = 0; i < rows.size(); ++i) tenants.push_back(rows.text(i, 0));
  return tenants;
}

Status recount(SqlSession& session, std::string_view tenant) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT COUNT(*), CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM threads "
                  "WHERE tenant = $1",
                  {tenant}));
  LOCI_RETURN_IF_ERROR(session.run("DELETE FROM tenant_usage WHERE tenant = $1", {tenant}).status());
  return count_usage(session, tenant, rows.integer(0, 0), rows.integer(0, 1));
}

Result<MadeRoom> make_room(SqlSession& session, std::string_view tenant, const StoreQuota& quota,
                           std::int64_t kept_thread) {
  MadeRoom made;
  std::int64_t bytes = 0;
  if (!quota.bytes_max && !quota.threads_max) return made;
  for (int i = 0; i < kThreadsMadeRoomBy; ++i) {
    LOCI_ASSIGN_OR_RETURN(const StoreUsage usage, usage_of(session, tenant));
    if (!is_over(surplus_over(usage, quota))) return made;
    LOCI_ASSIGN_OR_RETURN(const SqlRows oldest,
                          session.run("SELECT thread, size_bytes FROM threads "
                                      "WHERE tenant = $1 AND thread <> $2 ORDER BY active_at, thread LIMIT 1",
                                      {tenant, kept_thread}));
    if (oldest.empty()) {
      LOCI_RETURN_IF_ERROR(too_large(usage, quota));
      return made;
    }
    bytes += oldest.integer(0, 1);
    if (i > 0 && bytes > kDeletedAtOnceBytes) break;
    LOCI_ASSIGN_OR_RETURN(const DeletedThread deleted, delete_thread(session, oldest.integer(0, 0)));
    made.deleted.gone += deleted.gone;
    made.deleted.taken_bytes += deleted.taken_bytes;
  }
  made.is_over = true;
  return made;
}

}  // namespace loci::store_rows
