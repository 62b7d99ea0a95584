// SPDX-License-Identifier: Apache-2.0
// The contents of a modelled disk, as a starting process finds them: the entries of its slots, and its holes.
// Dates are virtual milliseconds. Thread-compatible; entries() is O(n log n), the rest O(log n).
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/state_form.h"

namespace loci::sim {

class DiskRecords {
 public:
  // `groups`: of layers.
  explicit DiskRecords(std::uint32_t groups) : groups_(groups) {}
  // A write begins, so what its slots held is gone. Only for moves to the disk.
  void begin(const Move& move);
  // The write has succeeded.
  void end(const Move& move, Nanos now);
  void see(const RecordChange& change, Nanos now);
  // Whether the move's block lies where it is read from. Only for moves from the disk.
  bool has(const Move& move) const;
  // All entries, parents before children.
  Recovered entries(Nanos now) const;

 private:
  std::uint32_t pool(const Move& move, const MovePart& part) const {
    return pool_of(part.group, move.form, groups_);
  }

  std::uint32_t groups_;
  std::map<std::pair<std::uint32_t, SlotId>, BlockEntry> slots_;  // by pool: of a group and a form
  std::map<SlotId, BlockEntry> holes_;
};

}  // namespace loci::sim
