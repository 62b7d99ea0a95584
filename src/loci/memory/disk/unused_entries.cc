// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/unused_entries.h"

namespace loci {
namespace {

constexpr std::size_t kBetweenStops = 1024;  // steps between two questions for a stop

}  // namespace

void UnusedEntries::add(const RecoveredEntry& one, std::size_t folder) {
  const BlockEntry& entry = one.entry;
  Block& block = blocks_[entry.key];
  block.above = entry.parent_kind == ParentKind::kGate ? entry.above : entry.parent;
  block.is_first = entry.parent_kind == ParentKind::kRoot;
  if (entry.used_at >= before_) {
    block.stays = true;
    return;
  }
  old_.push_back({.entry = {.key = entry.key,
                            .used_at = entry.used_at,
                            .group = one.hole ? kHoleGroup : one.group,
                            .slot = one.slot},
                  .folder = folder});
}

void UnusedEntries::keep_above(const Block& block) {
  for (const Block* at = &block; !at->is_first;) {
    const auto above = blocks_.find(at->above);
    if (above == blocks_.end() || above->second.stays) return;
    above->second.stays = true;
    at = &above->second;
  }
}

std::vector<std::vector<UnusedEntry>> UnusedEntries::take(std::size_t folders, const StopAsked& stop) {
  std::vector<std::vector<UnusedEntry>> unused(folders);
  std::size_t steps = 0;
  // (Those that it marks on the way need no step of their own, and a step more does no harm.)
  for (const auto& [key, block] : blocks_) {
    if (++steps % kBetweenStops == 0 && stop()) return unused;
    if (block.stays) keep_above(block);
  }
  for (const Old& one : old_) {
    if (++steps % kBetweenStops == 0 && stop()) return unused;
    if (!blocks_.at(one.entry.key).stays) unused[one.folder].push_back(one.entry);
  }
  return unused;
}

}  // namespace loci
