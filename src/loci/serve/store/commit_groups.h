// SPDX-License-Identifier: Apache-2.0
// Several threads' transactions made durable by one fsync.
//
// Example: a commits. While the disk synchronises, b, c and d come and wait. The first of them, b, leads the
// next group: it runs the bodies of b, c and d in one transaction of the database and commits once; then all
// three return. So the disk's speed bounds the groups in a second, not the turns. Nobody waits for others to
// come.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"

namespace loci {

// One caller's transaction in a group, and what came of it.
struct CommitMember {
  const SqlDatabase::Body* body = nullptr;
  Status status;
};

// Thread-safe. Callers wait in the order in which they came; one at a time leads, and does the work of its
// group on its own thread. Outlives its callers.
class CommitGroups {
 public:
  // Runs the members' bodies and makes what they wrote durable; sets each one's status. Never called by two
  // threads at once. At least one member, at most kMembersMax.
  using Commit = std::function<void(std::span<CommitMember* const>)>;
  static constexpr std::size_t kMembersMax = 64;

  explicit CommitGroups(Commit commit) : commit_(std::move(commit)) {}
  CommitGroups(const CommitGroups&) = delete;
  CommitGroups& operator=(const CommitGroups&) = delete;

  // Returns once the body's transaction is durable, or has failed.
  Status run(const SqlDatabase::Body& body);
  // Runs `job` while no group is committed.
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

  Status enter(Entry& entry) EXCLUDES(mutex_);
  void lead() EXCLUDES(mutex_);

  const Commit commit_;
  Mutex mutex_;                                    // never held during a commit
  std::deque<Entry*> waiting_ GUARDED_BY(mutex_);  // the first one leads
  bool busy_ GUARDED_BY(mutex_) = false;           // somebody leads
};

}  // namespace loci
