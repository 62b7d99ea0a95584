// SPDX-License-Identifier: Apache-2.0
// Reads from the disk, or from the shared store: loads to the device and prefetches to host memory. The
// source of blocks reads, verifies and calls back on its threads; each slice then goes straight to its
// target.
//
// A read that is given up is over at once, and what the source brings of it later is dropped: its target, and
// its source too, may belong to others by then.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "loci/engine/mover/mover_link.h"
#include "loci/memory/block_source.h"

namespace loci {

// One thread's, but for what it gives the source. It must outlive the source's and the
// backend's callbacks.
class MoverReads {
 public:
  // `source` may be null where no move reads a disk.
  MoverReads(const MoverLink& link, BlockSource* source);
  ~MoverReads();

  // Loads begin at once; their targets are being filled.
  void load(std::vector<Move> moves, Nanos taken);
  // Prefetches wait for one another, so that few of them are ever before a load.
  void prefetch(std::vector<Move> moves, Nanos taken);
  // Begins what may begin, gives up what is late. The time when it is wanted again; kNever: only after
  // something ended.
  Nanos step();
  // What was not read yet fails, and nobody is told.
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
  std::vector<std::shared_ptr<Batch>> batches_;  // not over, the earliest first
  std::deque<Waiting> waiting_;                  // prefetches
  std::uint32_t most_layers_ = 0;                // of a group
};

}  // namespace loci
