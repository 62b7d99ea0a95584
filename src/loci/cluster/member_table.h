// SPDX-License-Identifier: Apache-2.0
// The members of a cluster as rows of a PostgreSQL database (tables `members` and `member_joins` of the
// schema `loci`). Whoever may write there can delete rows; only who has the cluster's secret can make one
// that is believed.
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

// What a member learns when it renews its row.
struct MemberRenewal {
  std::int64_t now_ms = 0;  // by the database's clock
  bool is_asked_to_drain = false;
};

struct MemberList {
  std::vector<Member> members;  // that live, by id
  // Rows that are not believed: no seal of this cluster's secret, or damaged.
  std::uint32_t refused = 0;
};

// Thread-safe; calls wait for the database: for some seconds at most while it answers at all, until abandon()
// where it stands still. Errors of all: kUnavailable.
class MemberTable {
 public:
  // Makes the tables where they are missing. Errors: kInvalidArgument (the URL).
  static Result<std::unique_ptr<MemberTable>> open(const std::string& url, const MemberKey& key);
  ~MemberTable();

  Result<std::int64_t> now_ms();
  // Writes the member's first row, unless a living member serves a model of the same name that is not the
  // same (kInvalidArgument naming both values). Of several that begin at once the first one wins.
  Result<MemberRenewal> join(const Member& member);
  // Writes the row as of `at_ms`, which the member knows from its last renewal and its own clock. Where the
  // row is gone, or so old that others may take the member for dead, that is a join, with join()'s errors:
  // somebody else may have come meanwhile.
  Result<MemberRenewal> renew(const Member& member, std::int64_t at_ms);
  Status leave(const std::string& id);
  // For a stop: what waits for the database ends with kUnavailable, and so does every later call.
  void abandon();

  Result<MemberList> list();
  // Names in the conversation store (Member::store) of members that ended without leaving: sealed rows that
  // are kMemberLifetime old and a second more.
  Result<std::vector<std::string>> ended_stores();
  // Asks the member to drain, or not to any more. Errors: kNotFound (no living member of that id).
  Status ask_to_drain(const std::string& id, bool drain);

 private:
  MemberTable(std::unique_ptr<PostgresDatabase> database, const MemberKey& key);
  Result<MemberList> read(SqlSession& session) const;
  Result<MemberRenewal> write(SqlSession& session, const Member& member, std::int64_t at_ms) const;
  // Unless another member is not alike; nullopt: as of now.
  Result<MemberRenewal> write_checked(SqlSession& session, const Member& member,
                                      std::optional<std::int64_t> at_ms) const;
  // Whether all take that member for living, until the transaction has ended. Locks its row.
  Result<bool> is_living(SqlSession& session, const std::string& id) const;

  std::unique_ptr<PostgresDatabase> database_;
  MemberKey key_;
};

}  // namespace loci
