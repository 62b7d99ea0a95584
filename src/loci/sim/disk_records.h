// SPDX-License-Identifier: Apache-2.0
// The contents of a modelled disk, as a starting process finds them: the entries of its slots, and its holes.
// Dates are virtual milliseconds. Thread-compatible; entries() is O(n log n), the rest O(log n).
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"

namespace loci::sim {

class DiskRecords {
 public:
  // A write begins, so what its slots held is gone. Only for moves to the disk.
  void begin(const Move& move);
  // The write has succeeded.
  void end(const Move& move, Nanos now);
  void see(const RecordChange& change, Nanos now);
  // All entries, parents before children.
  Recovered entries(Nanos now) const;

 private:
  std::map<std::pair<std::uint32_t, SlotId>, BlockEntry> slots_;  // by group
  std::map<SlotId, BlockEntry> holes_;
};

}  // namespace loci::sim
