// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/commit_groups.h"

#include <exception>

namespace loci {

Status CommitGroups::run(const SqlCaller& caller, const SqlDatabase::Body& body) {
  Entry entry;
  entry.member.body = &body;
  entry.member.bytes = caller.bytes;
  return enter(caller.tenant, entry);
}

Status CommitGroups::alone(const std::function<Status()>& job) {
  Entry entry;
  entry.job = &job;
  return enter({}, entry);
}

Status CommitGroups::enter(std::string_view tenant, Entry& entry) {
  {
    MutexLock lock(mutex_);
    const auto [line, is_new] = lines_.try_emplace(std::string(tenant));
    if (is_new) turns_.push_back(line);
    line->second.push_back(&entry);
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

std::vector<CommitGroups::Entry*> CommitGroups::take_group() {
  std::vector<Entry*> group;
  std::vector<Lines::iterator> passed_over;
  std::uint64_t bytes = 0;
  while (!turns_.empty() && group.size() < kMembersMax) {
    const Lines::iterator line = turns_.front();
    Entry* const next = line->second.front();
    turns_.pop_front();
    if (!group.empty() && (next->job != nullptr || bytes + next->member.bytes > kBytesMax)) {
      passed_over.push_back(line);
      continue;
    }
    group.push_back(next);
    bytes += next->member.bytes;
    line->second.pop_front();
    if (line->second.empty())
      lines_.erase(line);
    else
      turns_.push_back(line);
    if (next->job != nullptr) break;
  }
  turns_.insert(turns_.begin(), passed_over.begin(), passed_over.end());
  return group;
}

// The caller's entry is the first that waits.
void CommitGroups::lead() {
  std::vector<Entry*> group;
  {
    const MutexLock lock(mutex_);
    group = take_group();
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
  busy_ = !turns_.empty();
  if (!busy_) return;
  first()->leads = true;
  first()->called.notify_one();
}

}  // namespace loci
