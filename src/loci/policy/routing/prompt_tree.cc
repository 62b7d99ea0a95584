// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/prompt_tree.h"

#include <algorithm>
#include <bit>

namespace loci {

PromptTree::PromptTree(std::size_t entries_max, Nanos time_to_live)
    : entries_max_(std::clamp<std::size_t>(entries_max, 1, kNone / 4)),
      time_to_live_(time_to_live),
      slots_(std::bit_ceil(2 * entries_max_)) {}

std::size_t PromptTree::home_of(std::uint64_t key, std::uint32_t instance) const {
  const std::uint64_t mixed = (key ^ instance * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
  return static_cast<std::size_t>(mixed >> 32) & (slots_.size() - 1);
}

std::size_t PromptTree::slot_of(std::uint64_t key, std::uint32_t instance) const {
  std::size_t slot = home_of(key, instance);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& entry = pool_[slots_[slot] - 1];
    if (entry.key == key && entry.instance == instance) break;
  }
  return slot;
}

bool PromptTree::has(std::uint64_t key, std::uint32_t instance, Nanos now) const {
  const std::uint32_t entry = slots_[slot_of(key, instance)];
  return entry != 0 && now - pool_[entry - 1].used_at <= time_to_live_;
}

std::vector<std::uint32_t> PromptTree::match(std::span<const std::uint64_t> keys,
                                             std::span<const std::uint32_t> instances, Nanos now) const {
  std::vector<std::uint32_t> matched;
  matched.reserve(instances.size());
  for (const std::uint32_t instance : instances) {
    std::size_t had = 0, lacking = keys.size();  // so many chunks it has; it does not have that many and one
    while (had < lacking) {
      const std::size_t middle = had + (lacking - had) / 2;
      if (has(keys[middle], instance, now))
        had = middle + 1;
      else
        lacking = middle;
    }
    matched.push_back(static_cast<std::uint32_t>(had));
  }
  return matched;
}

std::uint32_t PromptTree::make_entry() {
  if (entries_ == entries_max_) drop(oldest_);
  ++entries_;
  if (free_.empty()) {
    pool_.emplace_back();
    return static_cast<std::uint32_t>(pool_.size() - 1);
  }
  const std::uint32_t entry = free_.back();
  free_.pop_back();
  return entry;
}

void PromptTree::insert(std::span<const std::uint64_t> keys, std::uint32_t instance, Nanos now) {
  if (keys.size() > entries_max_) keys = keys.first(entries_max_);
  // From the end, so that of one prompt the beginning is the youngest.
  for (std::size_t i = keys.size(); i-- > 0;) {
    const std::uint32_t known = slots_[slot_of(keys[i], instance)];
    std::uint32_t entry = known - 1;
    if (known != 0) {
      unlink(entry);
    } else {
      entry = make_entry();  // which may move slots
      pool_[entry] = {.key = keys[i], .used_at = now, .instance = instance};
      slots_[slot_of(keys[i], instance)] = entry + 1;
    }
    pool_[entry].used_at = now;
    make_youngest(entry);
  }
}

void PromptTree::unlink(std::uint32_t entry) {
  const Entry& one = pool_[entry];
  (one.older == kNone ? oldest_ : pool_[one.older].younger) = one.younger;
  (one.younger == kNone ? youngest_ : pool_[one.younger].older) = one.older;
}

void PromptTree::make_youngest(std::uint32_t entry) {
  pool_[entry].older = youngest_;
  pool_[entry].younger = kNone;
  (youngest_ == kNone ? oldest_ : pool_[youngest_].younger) = entry;
  youngest_ = entry;
}

void PromptTree::forget(std::uint64_t key, std::uint32_t instance) {
  if (const std::uint32_t known = slots_[slot_of(key, instance)]; known != 0) drop(known - 1);
}

void PromptTree::drop(std::uint32_t entry) {
  unlink(entry);
  empty_slot(slot_of(pool_[entry].key, pool_[entry].instance));
  free_.push_back(entry);
  --entries_;
}

// Those behind it that would not be found past an empty slot move up.
void PromptTree::empty_slot(std::size_t slot) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t next = (slot + 1) & mask; slots_[next] != 0; next = (next + 1) & mask) {
    const Entry& entry = pool_[slots_[next] - 1];
    const std::size_t home = home_of(entry.key, entry.instance);
    if (((next - home) & mask) < ((next - slot) & mask)) continue;
    slots_[slot] = slots_[next];
    slot = next;
  }
  slots_[slot] = 0;
}

}  // namespace loci
