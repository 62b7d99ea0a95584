// SPDX-License-Identifier: Apache-2.0
// The members of a cluster as rows of a PostgreSQL database (tables `members` and `member_joins` of the
// schema `loci`). Anybody who may write to the database can delete rows, but only a holder of the cluster's
// secret can make a row that is believed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/cluster/member.h"

namespace loci {

class PostgresDatabase;
class SqlSession;

// What a member learns when it renews its row:
struct MemberRenewal {
  std::int64_t now_ms = 0;  // by the database's clock
  bool is_asked_to_drain = false;
};

struct MemberList {
  std::vector<Member> members;  // the living ones, by id
  // How many rows are not believed: without a seal by this cluster's secret, or damaged.
  std::uint32_t refused = 0;
};

// The members as the session's transaction sees them. Errors: those of its statements.
Result<MemberList> read_members(SqlSession& session, const MemberKey& key);

// Thread-safe. Calls wait for the database: for a few seconds if it answers at all, else until abandon().
// Errors of all calls: kUnavailable.
class MemberTable {
 public:
  // Makes the tables if they are missing. Errors: kInvalidArgument (the URL).
  static Result<std::unique_ptr<MemberTable>> open(const std::string& url, const MemberKey& key);
  ~MemberTable();

  Result<std::int64_t> now_ms();
  // Writes the member's first row. Errors: kInvalidArgument naming both values, if a living member serves a
  // different model of the same name. Of several members that join at once the first one wins.
  Result<MemberRenewal> join(const Member& member);
  // Writes the row with the time `at_ms`, which the member computes from its last renewal and its own clock.
  // If the row is gone, or so old that others may take the member for dead, this is a join, with the errors
  // of join(): a different member may have come meanwhile.
  Result<MemberRenewal> renew(const Member& member, std::int64_t at_ms);
  Status leave(const std::string& id);
  // For a stop: calls that wait for the database end with kUnavailable, and so does every later call.
  void abandon();

  Result<MemberList> list();
  // Names in the conversation store (Member::store) of members that ended without leaving: those of sealed
  // rows that are older than kMemberLifetime and a second.
  Result<std::vector<std::string>> ended_stores();
  // Asks the member to drain, or no longer to drain. Errors: kNotFound (no living member of that id).
  Status ask_to_drain(const std::string& id, bool drain);

 private:
  MemberTable(std::unique_ptr<PostgresDatabase> database, const MemberKey& key);
  Result<MemberRenewal> write(SqlSession& session, const Member& member, std::int64_t at_ms) const;
  // Writes the row unless a different model of the same name is served. `at_ms` nullopt: now.
  Result<MemberRenewal> write_checked(SqlSession& session, const Member& member,
                                      std::optional<std::int64_t> at_ms) const;
  // True: everybody counts that member as living, until the transaction ends. Locks its row.
  Result<bool> is_living(SqlSession& session, const std::string& id) const;

  std::unique_ptr<PostgresDatabase> database_;
  MemberKey key_;
};

}  // namespace loci
