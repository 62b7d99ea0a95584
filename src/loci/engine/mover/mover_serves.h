// SPDX-License-Identifier: Apache-2.0
// Serves state to other servers of the cluster, by passing it to the outlet. What lies in memory that this
// process can read is lent: the outlet sends it from there. The rest is copied out of the device in small
// steps, as saves are, or read from the disk. A move is of the layers of its rounds, of
// which a group may have none. Moves begin in their order, and one out of memory is given before the next one
// begins: so the rounds of a block come in order. The core bounds how many blocks are in flight
// (peer_reads.h), and with it the memory that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/engine/mover/mover_link.h"
#include "loci/engine/mover/peer_outlet.h"
#include "loci/memory/block_source.h"

namespace loci {

// Thread-compatible; the ends of its reads, and those of the bytes that it gives, come on other threads. It
// must outlive them.
class MoverServes {
 public:
  // `disk` may be null if no move reads the disk, `outlet` if there are no moves.
  MoverServes(const MoverLink& link, BlockSource* disk, PeerOutlet* outlet);

  void add(std::vector<Move> moves);
  // Gives a part of the first move, copies some of its layers, or begins to read them from the disk. False:
  // there is nothing to do.
  bool step();
  // Gives up parts that the disk has not brought within the limit of loads; the outlet is told that they are
  // gone. Returns the time at which it must be called again; kNever: only after a read was begun.
  Nanos give_up_late();

 private:
  class FromDisk;
  class Given;
  // Memory of parts, which is used again while others are on their way: fresh memory costs as much as the
  // copy. A part gets memory of at most twice its size; of what nobody has taken for longest only kFreeMax
  // pieces are kept. Thread-safe.
  class Buffers {
   public:
    std::vector<std::byte> take(std::uint64_t bytes) EXCLUDES(mutex_);
    void give_back(std::vector<std::byte> buffer) EXCLUDES(mutex_);

    static constexpr std::size_t kFreeMax = 16;  // as many as the core has on their way

   private:
    Mutex mutex_;
    std::size_t taken_ GUARDED_BY(mutex_) = 0;
    // In the order in which they came back; none while none is taken.
    std::deque<std::vector<std::byte>> free_ GUARDED_BY(mutex_);
  };
  // The parts of a move that have not been given yet.
  struct Left;
  struct Serve {
    Move move;
    Nanos begun = kNever;
    std::uint32_t part = 0;
    std::uint32_t done = 0;  // of the part's layers: they were copied, or can be lent
    std::vector<std::byte> buffer;
    std::shared_ptr<Left> left;
  };

  // The layers of the part that the move's rounds have.
  LayerRange layers_of(const Move& move, std::uint32_t part) const;
  std::uint64_t bytes_of(const Move& move, std::uint32_t part) const;
  void end_front_part(Serve& serve);
  // The part's next layers, no more than a step may take; of host memory all of them.
  LayerRange next_layers(const Serve& serve) const;
  // The memory of some layers of the part, if the process can read it; else empty.
  std::span<const std::byte> view(const Move& move, std::uint32_t part, LayerRange layers) const;
  void copy(Serve& serve, LayerRange layers) const;
  Status check_slices(const Move& move, std::uint32_t part, LayerRange layers) const;
  void give(const std::shared_ptr<Left>& left, std::uint32_t part, std::unique_ptr<const Given> given) const;
  void fail(const std::shared_ptr<Left>& left, std::uint32_t part, const Status& why) const;
  void end_part(Left& left) const;

  std::vector<std::shared_ptr<FromDisk>> reads_;  // those that have not ended, the earliest first

  const MoverLink link_;
  BlockSource* const disk_;
  PeerOutlet* const outlet_;
  std::deque<Serve> serves_;
  mutable Buffers buffers_;
};

}  // namespace loci
