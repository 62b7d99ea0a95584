// SPDX-License-Identifier: Apache-2.0
// What tenants have used of their limits, as rows of the cluster's PostgreSQL database: tables
// `tenant_limits` and `tenant_places` of the schema `loci` (docs/cluster.md#limits-of-tenants has the bytes).
// The arithmetic is TenantMeter's; the rows keep a meter between two calls, of whatever server.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cluster/member.h"
#include "loci/serve/tenants/limit_pool.h"

namespace loci {

class PostgresDatabase;
class SqlSession;

// A tenant in a call of LimitTable::count().
struct CountedTenant {
  std::string tenant;
  TenantLimits limits;             // as last asked
  std::uint64_t tokens_taken = 0;  // of requests that have ended, and what they used
  std::uint64_t tokens_used = 0;
  std::uint32_t running = 0;  // requests of this server, those that `asks` begin not among them
  std::vector<LimitAsk> asks;
  std::vector<LimitAnswer> answers;  // of count(): one for each ask, in order
  // Of count(). False without an error: another server counts this tenant just now, and nothing was counted.
  bool is_counted = false;
};

// One thread's. Calls wait for the database, for a few seconds at most. Errors of all calls: kUnavailable.
class LimitTable {
 public:
  // Makes the tables if they are missing. `member`: names this server's rows. Errors: kInvalidArgument (the
  // URL).
  static Result<std::unique_ptr<LimitTable>> open(const std::string& url, const MemberKey& key,
                                                  std::string member);
  ~LimitTable();

  // Settles what has ended, then counts the asks in order, each with its own limits: at most kCountedMax
  // different tenants at once. Of a tenant all or nothing. It waits for no row that another server has: so a
  // tenant that floods servers holds up no other. After an error, tenants that are not counted may have been
  // written all the same.
  Status count(std::vector<CountedTenant>& tenants);
  static constexpr std::size_t kCountedMax = 256;

  // Says that this server lives, so that its running requests count for another five seconds. Returns how
  // many members of this cluster do.
  Result<std::uint32_t> renew();
  // This server's requests count no longer.
  Status leave();
  // Deletes rows that say nothing any more: at most 1,000 of each table.
  Status clear();
  // For a stop, from any thread: calls that wait for the database end, and so does every later call.
  void abandon();

 private:
  LimitTable(std::unique_ptr<PostgresDatabase> database, const MemberKey& key, std::string member);
  std::string name_of(const std::string& tenant) const;
  // Tenants by the names of their rows.
  using Tenants = std::map<std::string, CountedTenant*>;
  // Counts those whose rows nobody else has. Returns those that have no row.
  Result<Tenants> count_free(const Tenants& tenants);
  Status make_rows(const Tenants& tenants);

  std::unique_ptr<PostgresDatabase> database_;
  const MemberKey key_;
  const std::string member_;
  std::string living_;         // what the database says of all rows of members, of whatever cluster
  std::uint32_t members_ = 1;  // of this cluster, when it said so
};

}  // namespace loci
