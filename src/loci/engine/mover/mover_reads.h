// SPDX-License-Identifier: Apache-2.0
// Reads from the disk, or from the shared store: loads to the device and prefetches to host memory. The
// source of blocks reads, verifies and calls back on its threads; each slice then goes straight to its
// target.
//
// A read that is given up ends at once. Slices that the source brings later are dropped, because the target
// and the source may belong to others by then.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "loci/engine/mover/mover_link.h"
#include "loci/memory/block_source.h"

namespace loci {

// Thread-compatible, except for the callbacks that it gives the source. It must outlive the callbacks of the
// source and of the backend.
class MoverReads {
 public:
  // `source` may be null if no move reads from it.
  MoverReads(const MoverLink& link, BlockSource* source);
  ~MoverReads();

  // Loads begin at once; Backend::begin_fill() has been called for their targets.
  void load(std::vector<Move> moves, Nanos taken);
  // Prefetches wait for one another, so that a load never waits for many of them.
  void prefetch(std::vector<Move> moves, Nanos taken);
  // Begins waiting prefetches and gives up late reads. Returns the time at which it must be called again;
  // kNever: only after a read has ended.
  Nanos step();
  // All remaining reads fail, without being reported.
  void abandon();

 private:
  class Batch;
  struct Waiting {
    Move move;
    Nanos taken = 0;
  };

  void begin(std::vector<Move> moves, Nanos taken, std::uint32_t layers_at_once);
  void begin_prefetches();

  const MoverLink link_;
  BlockSource* const source_;
  std::vector<std::shared_ptr<Batch>> batches_;  // those that have not ended, the earliest first
  std::deque<Waiting> waiting_;                  // prefetches
  std::uint32_t most_layers_ = 0;                // the most layers of any group
};

}  // namespace loci
