// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/prompt_tree.h"

#include <algorithm>

namespace loci {

PromptTree::PromptTree(std::size_t entries_max, Nanos time_to_live)
    : entries_max_(std::clamp<std::size_t>(entries_max, 1, kNone - 1)), time_to_live_(time_to_live) {}

std::vector<std::uint32_t> PromptTree::match(std::span<const std::uint64_t> keys,
                                             std::span<const std::uint32_t> instances, Nanos now) const {
  std::vector<std::uint32_t> matched(instances.size(), 0);
  std::unordered_map<std::uint32_t, std::size_t> place_of;
  for (std::size_t i = 0; i < instances.size(); ++i) place_of.try_emplace(instances[i], i);
  for (std::uint32_t depth = 0; depth < keys.size(); ++depth) {
    const auto first = first_of_key_.find(keys[depth]);
    if (first == first_of_key_.end()) break;
    bool goes_on = false;
    for (std::uint32_t at = first->second; at != kNone; at = pool_[at].next_of_key) {
      if (now - pool_[at].used_at > time_to_live_) continue;
      const auto place = place_of.find(pool_[at].instance);
      if (place == place_of.end()) continue;
      std::uint32_t& count = matched[place->second];
      if (count != depth) continue;
      count = depth + 1;
      goes_on = true;
    }
    if (!goes_on) break;
  }
  return matched;
}

void PromptTree::insert(std::span<const std::uint64_t> keys, std::uint32_t instance, Nanos now) {
  if (keys.size() > entries_max_) keys = keys.first(entries_max_);
  // From the end, so that of one prompt the beginning is the youngest.
  for (std::size_t i = keys.size(); i-- > 0;) {
    std::uint32_t entry = find(keys[i], instance);
    if (entry != kNone) {
      unlink(entry);
    } else {
      if (entries_ == entries_max_) drop_oldest();
      if (free_.empty()) {
        entry = static_cast<std::uint32_t>(pool_.size());
        pool_.emplace_back();
      } else {
        entry = free_.back();
        free_.pop_back();
      }
      const auto [first, is_new] = first_of_key_.try_emplace(keys[i], kNone);
      pool_[entry] = {.key = keys[i], .used_at = now, .instance = instance, .next_of_key = first->second};
      first->second = entry;
      ++entries_;
    }
    pool_[entry].used_at = now;
    make_youngest(entry);
  }
}

std::uint32_t PromptTree::find(std::uint64_t key, std::uint32_t instance) const {
  const auto first = first_of_key_.find(key);
  std::uint32_t at = first == first_of_key_.end() ? kNone : first->second;
  while (at != kNone && pool_[at].instance != instance) at = pool_[at].next_of_key;
  return at;
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

void PromptTree::drop_oldest() {
  const std::uint32_t entry = oldest_;
  unlink(entry);
  const auto first = first_of_key_.find(pool_[entry].key);
  std::uint32_t* link = &first->second;
  while (*link != entry) link = &pool_[*link].next_of_key;
  *link = pool_[entry].next_of_key;
  if (first->second == kNone) first_of_key_.erase(first);
  free_.push_back(entry);
  --entries_;
}

}  // namespace loci
