// SPDX-License-Identifier: Apache-2.0
// Several threads' transactions made durable by one fsync.
//
// Example: a commits. While the disk synchronises, b, c and d come and wait. The first of them, b, leads the
// next group: it runs the bodies of b, c and d in one transaction of the database and commits once; then all
// three return. So the disk's speed bounds the groups in a second, not the turns. Nobody waits for others to
// come.
//
// Tenants take turns: a group gets one transaction of each tenant that waits, then a second one of each, and
// so on. It writes about kBytesMax, or its first transaction alone. A tenant whose next one has no room is
// passed over, and is the first in the next group. So whoever comes behind a tenant with 31 transactions of
// 8 MiB waits for one or two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"

namespace loci {

// One caller's transaction in a group, and what came of it.
struct CommitMember {
  const SqlDatabase::Body* body = nullptr;
  Status status;
  std::uint64_t bytes = 0;  // about what it writes
};

// Thread-safe. One caller at a time leads, and does the work of its group on its own thread; one tenant's
// callers have their turn in the order in which they came. Outlives its callers.
class CommitGroups {
 public:
  // Runs the members' bodies and makes what they wrote durable; sets each one's status. Never called by two
  // threads at once. At least one member, at most kMembersMax.
  using Commit = std::function<void(std::span<CommitMember* const>)>;
  static constexpr std::size_t kMembersMax = 64;
  static constexpr std::uint64_t kBytesMax = 16 << 20;

  explicit CommitGroups(Commit commit) : commit_(std::move(commit)) {}
  CommitGroups(const CommitGroups&) = delete;
  CommitGroups& operator=(const CommitGroups&) = delete;

  // Returns once the body's transaction is durable, or has failed.
  Status run(const SqlCaller& caller, const SqlDatabase::Body& body);
  // Runs `job`, the server's own, while no group is committed.
  Status alone(const std::function<Status()>& job);

 private:
  struct Entry {
    CommitMember member;
    const std::function<Status()>* job = nullptr;  // null: a member of a group
    Condition called;
    // The rest is under the groups' mutex_.
    bool leads = false;
    bool done = false;
  };
  using Lines = std::map<std::string, std::deque<Entry*>, std::less<>>;

  Status enter(std::string_view tenant, Entry& entry) EXCLUDES(mutex_);
  void lead() EXCLUDES(mutex_);
  Entry* first() REQUIRES(mutex_) { return turns_.front()->second.front(); }
  // Takes the next group out of the lines. O(log tenants) for each member, and for each tenant passed over.
  std::vector<Entry*> take_group() REQUIRES(mutex_);

  const Commit commit_;
  Mutex mutex_;                     // never held during a commit
  Lines lines_ GUARDED_BY(mutex_);  // of each tenant that waits, in its order; none is empty
  std::deque<Lines::iterator> turns_ GUARDED_BY(mutex_);  // all of them; the first one's first leads
  bool busy_ GUARDED_BY(mutex_) = false;                  // somebody leads
};

}  // namespace loci
