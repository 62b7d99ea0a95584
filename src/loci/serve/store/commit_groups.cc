// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/commit_groups.h"

#include <exception>

namespace loci {

Status CommitGroups::run(const SqlDatabase::Body& body) {
  Entry entry;
  entry.member.body = &body;
  return enter(entry);
}

Status CommitGroups::alone(const std::function<Status()>& job) {
  Entry entry;
  entry.job = &job;
  return enter(entry);
}

Status CommitGroups::enter(Entry& entry) {
  {
    MutexLock lock(mutex_);
    waiting_.push_back(&entry);
    if (busy_) {
      entry.called.wait(lock, [&entry] { return entry.leads || entry.done; });
    } else {
      busy_ = true;  // nobody leads, so nobody else waits
    }
    if (entry.done) return std::move(entry.member.status);
  }
  lead();
  return std::move(entry.member.status);
}

// The caller's entry is the first that waits.
void CommitGroups::lead() {
  std::vector<Entry*> group;
  group.reserve(kMembersMax);
  {
    const MutexLock lock(mutex_);
    do {
      group.push_back(waiting_.front());
      waiting_.pop_front();
    } while (group.front()->job == nullptr && group.size() < kMembersMax && !waiting_.empty() &&
             waiting_.front()->job == nullptr);
  }
  try {
    if (group.front()->job != nullptr) {
      group.front()->member.status = (*group.front()->job)();
    } else {
      std::vector<CommitMember*> members;
      members.reserve(group.size());
      for (Entry* entry : group) members.push_back(&entry->member);
      commit_(members);
    }
  } catch (const std::exception& error) {  // out of memory, say: those behind them go on
    for (Entry* entry : group) entry->member.status = internal_error(error.what());
  }
  // Under the lock: who is done goes, and its entry with it.
  const MutexLock lock(mutex_);
  for (Entry* entry : group) {
    entry->done = true;
    entry->called.notify_one();
  }
  busy_ = !waiting_.empty();
  if (!busy_) return;
  waiting_.front()->leads = true;
  waiting_.front()->called.notify_one();
}

}  // namespace loci
