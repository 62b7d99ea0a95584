// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/disk_records.h"

#include <algorithm>

namespace loci::sim {
namespace {

BlockEntry dated(BlockEntry entry, Nanos now) {
  entry.used_at = now / kNanosPerMilli;
  return entry;
}

}  // namespace

void DiskRecords::begin(const Move& move) {
  for (const MovePart& part : move.parts) slots_.erase({pool(move, part), part.to});
}

void DiskRecords::end(const Move& move, Nanos now) {
  for (const MovePart& part : move.parts)
    slots_.insert_or_assign({pool(move, part), part.to}, dated(move.entry, now));
}

bool DiskRecords::has(const Move& move) const {
  return std::ranges::all_of(move.parts, [&](const MovePart& part) {
    const auto at = slots_.find({pool(move, part), part.from});
    return at != slots_.end() && at->second.key == move.entry.key;
  });
}

void DiskRecords::see(const RecordChange& change, Nanos now) {
  switch (change.kind) {
    case RecordChange::Kind::kHole: holes_.insert_or_assign(change.slot, dated(change.entry, now)); return;
    case RecordChange::Kind::kForgetHole: holes_.erase(change.slot); return;
    case RecordChange::Kind::kForget: slots_.erase({change.group, change.slot}); return;
    case RecordChange::Kind::kUsed: break;
  }
  const auto at = slots_.find({change.group, change.slot});
  if (at != slots_.end() && at->second.key == change.entry.key) at->second = dated(at->second, now);
}

Recovered DiskRecords::entries(Nanos now) const {
  Recovered all{.entries = {}, .now = now / kNanosPerMilli, .last = true};
  for (const auto& [place, entry] : slots_) all.entries.push_back({entry, place.first, false, place.second});
  for (const auto& [slot, entry] : holes_) all.entries.push_back({entry, 0, true, slot});
  std::stable_sort(all.entries.begin(), all.entries.end(),
                   [](const auto& a, const auto& b) { return a.entry.depth < b.entry.depth; });
  return all;
}

}  // namespace loci::sim
