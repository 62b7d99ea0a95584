// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_clears.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {

DiskClears::DiskClears(std::uint32_t directories, DirectoryOf directory_of, Nanos answer_limit,
                       DiskCounters& counters)
    : directory_of_(std::move(directory_of)),
      pause_min_(std::max<Nanos>(1, answer_limit / 8)),
      pause_max_(std::max<Nanos>(1, answer_limit)),
      counters_(counters),
      directories_(directories) {}

void DiskClears::move(Slot slot, Owed& owed, Stage to, Nanos due) {
  Directory& directory = directory_of(slot);
  if (owed.stage == Stage::kWaiting) directory.waiting.erase({owed.due, slot});
  if (owed.stage == Stage::kTried) --directory.tried;
  owed.stage = to;
  owed.due = due;
  if (to == Stage::kWaiting) directory.waiting.emplace(due, slot);
  if (to == Stage::kTried) ++directory.tried;
}

void DiskClears::owe(Slot slot, Nanos now) {
  Owed& owed = owed_[slot];
  const bool was_tried = owed.stage == Stage::kTried;
  Directory& directory = directory_of(slot);
  // (Those that were tried with the first that failed fail with it: they make no pause longer.)
  if (was_tried && now >= directory.paused_until) {
    directory.pause =
        directory.pause == 0 || hurries_ ? pause_min_ : std::min(2 * directory.pause, pause_max_);
    directory.paused_until = now + directory.pause;
  }
  const Stage to = unanswered_.contains(slot) ? Stage::kHeld : Stage::kWaiting;
  move(slot, owed, to, was_tried ? now : now + pause_min_);
  count();
}

void DiskClears::begin(Slot slot) {
  const auto found = owed_.find(slot);
  if (found != owed_.end()) found->second.overtaken = false;
}

void DiskClears::settle(Slot slot) {
  const auto found = owed_.find(slot);
  if (found != owed_.end() && found->second.stage == Stage::kTried) directory_of(slot).pause = 0;
  if (unanswered_.contains(slot)) {
    move(slot, owed_[slot], Stage::kHeld, 0);
  } else if (found != owed_.end() && found->second.overtaken) {
    move(slot, found->second, Stage::kWaiting, 0);
  } else if (found != owed_.end()) {
    move(slot, found->second, Stage::kHeld, 0);
    owed_.erase(found);
  }
  count();
}

void DiskClears::replace(Slot slot) {
  const auto found = unanswered_.find(slot);
  if (found != unanswered_.end()) found->second.unwanted = true;
}

void DiskClears::answer(Slot slot, Nanos now) {
  const auto found = unanswered_.find(slot);
  LOCI_CHECK(found != unanswered_.end(), "a write that was given up is answered once");
  if (--found->second.writes > 0) return;
  const bool unwanted = found->second.unwanted;
  unanswered_.erase(found);
  if (!unwanted && !owes(slot)) return;
  Owed& owed = owed_[slot];
  owed.overtaken = true;
  if (owed.stage != Stage::kTried) move(slot, owed, Stage::kWaiting, now);  // else its end is told
  count();
}

std::vector<DiskClears::Slot> DiskClears::due(Nanos now) {
  std::vector<Slot> slots;
  for (Directory& directory : directories_) {
    if (now < directory.paused_until) continue;
    while (directory.tried < kAtOnce && !directory.waiting.empty() &&
           directory.waiting.begin()->first <= now) {
      const Slot slot = directory.waiting.begin()->second;
      const bool is_held = unanswered_.contains(slot);
      move(slot, owed_.at(slot), is_held ? Stage::kHeld : Stage::kTried, 0);
      if (!is_held) slots.push_back(slot);
    }
  }
  return slots;
}

void DiskClears::postpone(Slot slot, Nanos now) {
  move(slot, owed_.at(slot), Stage::kWaiting, now + pause_min_);
}

Nanos DiskClears::wait(Nanos now) const {
  Nanos until = kNever;
  for (const Directory& directory : directories_) {
    if (directory.waiting.empty() || directory.tried >= kAtOnce) continue;
    until = std::min(until, std::max(directory.paused_until, directory.waiting.begin()->first));
  }
  return until == kNever ? kNever : std::max<Nanos>(0, until - now);
}

void DiskClears::hurry() {
  hurries_ = true;
  for (Directory& directory : directories_) {
    directory.pause = directory.paused_until = 0;
    std::set<std::pair<Nanos, Slot>> waiting;
    for (const auto& [due, slot] : directory.waiting) {
      owed_.at(slot).due = 0;
      waiting.emplace(0, slot);
    }
    directory.waiting = std::move(waiting);
  }
}

}  // namespace loci
