// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/device_memory.h"

#include <algorithm>
#include <optional>

#include "loci/base/check.h"

namespace loci {
namespace {

// In one step, of all groups: giving their memory back takes about a millisecond.
constexpr std::size_t kGiveBackAtOnce = 16;

}  // namespace

DeviceMemory::DeviceMemory(const CoreConfig& config, BlockIndex& index)
    : index_(index), group_count_(static_cast<std::uint32_t>(config.groups.size())) {
  for (std::uint32_t group = 0; group < group_count_; ++group)
    room_[group] = config.groups[group].block_count;
}

void DeviceMemory::limit(const MemoryRoom& room) {
  limited_ = false;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint32_t count = index_.slot_count(group);
    room_[group] = group < room.slots.size() ? std::min(room.slots[group], count) : count;
    index_.limit_used_slots(group, room_[group]);
    limited_ = limited_ || room_[group] < count;
  }
}

std::vector<FreedSlot> DeviceMemory::give_back() {
  std::vector<FreedSlot> freed;
  has_more_ = false;
  if (!limited_) return freed;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    while (freed.size() < kGiveBackAtOnce) {
      const std::optional<SlotId> slot = index_.give_back(group);
      if (!slot) break;
      freed.push_back({group, *slot});
    }
  }
  has_more_ = freed.size() == kGiveBackAtOnce;
  given_back_ += freed.size();
  return freed;
}

void DeviceMemory::add_stats(CoreStats& stats) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    stats.pools[group].blocks_held = index_.used_slots(group);
    stats.pools[group].blocks_room = room_[group];
  }
  stats.given_back_total = given_back_;
}

void DeviceMemory::check_invariants() const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint32_t taken = index_.slot_count(group) - index_.free_count(group);
    LOCI_CHECK(taken <= index_.used_slots(group) && index_.used_slots(group) <= index_.slot_count(group),
               "invariant 1: what is held has memory");
    const bool beyond = index_.used_slots(group) > room_[group];
    const bool all_needed = index_.evictable_count(group) == 0 && taken == index_.used_slots(group);
    LOCI_CHECK(has_more_ || !beyond || all_needed, "invariant 1: what is kept beyond the room is needed");
  }
}

}  // namespace loci
