// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/held_prompts.h"

#include <algorithm>
#include <utility>

#include "loci/policy/routing/named_chunks.h"

namespace loci {
namespace {

std::uint32_t chunks_between(std::uint32_t names_begin, std::uint32_t names_end) {
  return static_cast<std::uint32_t>(chunks_of_names(names_end) - chunks_of_names(names_begin));
}

}  // namespace

std::size_t HeldPrompts::slot_of(std::uint64_t name) const {
  std::size_t slot = home_of(name);
  while (slots_[slot] != 0 && (slots_[slot] & ~kTierBits) != name) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

std::optional<Tier> HeldPrompts::find(std::uint64_t name) const {
  if (slots_.empty()) return std::nullopt;
  const std::uint64_t word = slots_[slot_of(name & ~kTierBits)];
  return word == 0 ? std::nullopt : std::optional(static_cast<Tier>((word & kTierBits) - 1));
}

bool HeldPrompts::set(std::uint64_t name, std::optional<Tier> tier) {
  name &= ~kTierBits;
  if (slots_.empty() && !tier) return true;
  if (slots_.empty()) slots_.resize(64);
  std::size_t slot = slot_of(name);
  if (!tier) {
    if (slots_[slot] != 0) empty(slot);
    return true;
  }
  if (*tier == Tier::kShared) return false;  // nobody says so
  if (slots_[slot] == 0) {
    if (size_ == entries_max_) return false;
    if (2 * (size_ + 1) > slots_.size()) {
      grow();
      slot = slot_of(name);
    }
    ++size_;
  }
  slots_[slot] = name | (static_cast<std::uint64_t>(*tier) + 1);
  return true;
}

void HeldPrompts::grow() {
  const std::vector<std::uint64_t> before =
      std::exchange(slots_, std::vector<std::uint64_t>(2 * slots_.size()));
  for (const std::uint64_t word : before) {
    if (word != 0) slots_[slot_of(word & ~kTierBits)] = word;
  }
}

// Those behind it that would not be found past an empty slot move up.
void HeldPrompts::empty(std::size_t slot) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t next = (slot + 1) & mask; slots_[next] != 0; next = (next + 1) & mask) {
    const std::size_t home = home_of(slots_[next]);
    if (((next - home) & mask) < ((next - slot) & mask)) continue;
    slots_[slot] = slots_[next];
    slot = next;
  }
  slots_[slot] = 0;
  --size_;
}

void HeldPrompts::clear() {
  slots_ = {};
  size_ = 0;
}

HeldChunks HeldPrompts::match(std::span<const std::uint64_t> names, std::uint32_t sent,
                              std::uint32_t looks_max) const {
  HeldChunks out;
  const auto count = static_cast<std::uint32_t>(names.size());
  const std::uint32_t looks = std::min(count, std::max(looks_max, 1u));
  for (std::uint32_t look = 0; look < looks; ++look) {
    // Stands for those behind the one before, up to itself.
    const auto begin = static_cast<std::uint32_t>(std::uint64_t{look} * count / looks);
    const auto end = static_cast<std::uint32_t>(std::uint64_t{look + 1} * count / looks);
    if (const std::optional<Tier> tier = find(names[end - 1]))
      out.in[static_cast<std::size_t>(*tier)] += chunks_between(begin, end);
    else if (begin < sent)
      out.sent += chunks_between(begin, std::min(end, sent));
  }
  return out;
}

}  // namespace loci
