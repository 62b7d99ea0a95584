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
  // Ids of sealed rows that are too old, by id: of members that ended without leaving, or could not renew
  // them.
  std::vector<std::string> old;
  // How many rows are not believed: without a seal by this cluster's secret, or damaged.
  std::uint32_t refused = 0;
};

// The members as the session's transaction sees them. Errors: those of its statements.
Result<MemberList> read_members(SqlSession& session, const MemberKey& key);

struct MemberTableOptions {
  // How long a call waits for the database's answer, or for who joins at the same time.
  Nanos answer_timeout = 2 * kNanosPerSecond;
  // Older rows count as those of dead members. All members of a cluster must have the same.
  Nanos lifetime = kMemberLifetime;
};

// Thread-safe. Calls wait for the database: for a few answer_timeouts if it answers at all, else until
// abandon(). Errors of all calls: kUnavailable.
class MemberTable {
 public:
  // Makes the tables if they are missing. Errors: kInvalidArgument (the URL).
  static Result<std::unique_ptr<MemberTable>> open(const std::string& url, const MemberKey& key,
                                                   const MemberTableOptions& options = {});
  ~MemberTable();

  Result<std::int64_t> now_ms();
  // Writes the member's first row. Errors: kInvalidArgument naming both values, if a living member serves a
  // different model of the same name. Of several members that join at once the first one wins.
  Result<MemberRenewal> join(const Member& member);
  // Writes the row with the time `at_ms`, which the member computes from its last renewal and its own clock.
  // If the row is gone, this is a join, with the errors of join(): a different member may have come
  // meanwhile, which took away the row (write_checked()). A row that is only old is renewed as any, so that a
  // thousand members that come back after the database was away do not wait for one another.
  Result<MemberRenewal> renew(const Member& member, std::int64_t at_ms);
  Status leave(const std::string& id);
  // For a stop: calls that wait for the database end with kUnavailable, and so does every later call.
  void abandon();

  Result<MemberList> list();
  // Names in the conversation store (Member::store) of members that ended without leaving: those of sealed
  // rows that are older than MemberTableOptions::lifetime.
  Result<std::vector<std::string>> ended_stores();
  // Asks the member to drain, or no longer to drain. Errors: kNotFound (no living member of that id).
  Status ask_to_drain(const std::string& id, bool drain);

 private:
  MemberTable(std::unique_ptr<PostgresDatabase> database, const MemberKey& key, Nanos lifetime);
  Result<MemberRenewal> write(SqlSession& session, const Member& member, std::int64_t at_ms) const;
  // Writes the row unless a living member serves a different model of the same name. The rows of those that
  // seem dead, and do, are deleted: if one of them lives after all, its renewal either comes before and is
  // seen here, or finds no row. `at_ms` nullopt: now.
  Result<MemberRenewal> write_checked(SqlSession& session, const Member& member,
                                      std::optional<std::int64_t> at_ms) const;
  // True: the row is as this member wrote it, of any age, and stays so until the transaction ends.
  Result<bool> has_row(SqlSession& session, const Member& member) const;

  std::unique_ptr<PostgresDatabase> database_;
  MemberKey key_;
  std::int64_t lifetime_ms_;
};

}  // namespace loci
