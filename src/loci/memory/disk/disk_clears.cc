// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_clears.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {

DiskClears::DiskClears(Nanos answer_limit, DiskCounters& counters)
    : pause_min_(std::max<Nanos>(1, answer_limit / 8)),
      pause_max_(std::max<Nanos>(1, answer_limit)),
      counters_(counters) {}

void DiskClears::owe(Slot slot, Nanos now) {
  Owed& owed = owed_[slot];
  owed.pause = owed.pause == 0 || hurries_ ? pause_min_ : std::min(2 * owed.pause, pause_max_);
  owed.due = now + owed.pause;
  look_at_ = std::min(look_at_, owed.due);
  count();
}

void DiskClears::settle(Slot slot) {
  if (unanswered_.contains(slot)) {
    owed_[slot];  // until they are answered
  } else {
    owed_.erase(slot);
    if (owed_.empty()) look_at_ = kNever;
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
  if (!unwanted) return;
  owed_[slot] = {.due = now};
  look_at_ = std::min(look_at_, now);
  count();
}

std::vector<DiskClears::Slot> DiskClears::due(Nanos now) {
  std::vector<Slot> slots;
  if (now < look_at_) return slots;
  look_at_ = kNever;
  for (auto& [slot, owed] : owed_) {
    if (unanswered_.contains(slot)) continue;
    if (owed.due <= now) {
      slots.push_back(slot);
      owed.due = now + std::max(owed.pause, pause_min_);
    }
    look_at_ = std::min(look_at_, owed.due);
  }
  return slots;
}

Nanos DiskClears::wait(Nanos now) const {
  return look_at_ == kNever ? kNever : std::max<Nanos>(0, look_at_ - now);
}

void DiskClears::hurry() {
  hurries_ = true;
  for (auto& [slot, owed] : owed_) owed = {};
  if (!owed_.empty()) look_at_ = 0;
}

}  // namespace loci
