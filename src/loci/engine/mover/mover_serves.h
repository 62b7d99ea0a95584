// SPDX-License-Identifier: Apache-2.0
// State that other servers of the cluster read: copied out of the device or host memory in small steps, as
// saves are, or read from the disk, and handed to the outlet. The core bounds how many blocks are on their
// way (peer_reads.h), and with it the memory that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "loci/engine/mover/mover_link.h"
#include "loci/engine/mover/peer_outlet.h"
#include "loci/memory/block_source.h"

namespace loci {

// One thread's, but for the ends of what it reads and gives. It must outlive them.
class MoverServes {
 public:
  // `disk` may be null where no move reads one, `outlet` where there is no move.
  MoverServes(const MoverLink& link, BlockSource* disk, PeerOutlet* outlet);

  void add(std::vector<Move> moves);
  // Copies some layers of the first move, or has the disk read them; false: there is nothing to do.
  bool step();
  // Gives up what the disk has not brought within the limit of loads: those parts are gone. The time when it
  // is wanted again; kNever: only after something was begun.
  Nanos give_up_late();

 private:
  class FromDisk;
  // What of a move's parts has not been given yet.
  struct Left;
  struct Serve {
    Move move;
    Nanos begun = kNever;
    std::uint32_t part = 0;
    std::uint32_t index = 0;  // of the layer in the part's group
    std::vector<std::byte> buffer;
    std::shared_ptr<Left> left;
  };

  // True: the part's last layers were copied.
  Result<bool> copy(Serve& serve) const;
  void give(const std::shared_ptr<Left>& left, std::uint32_t part, std::vector<std::byte> bytes) const;
  void fail(const std::shared_ptr<Left>& left, std::uint32_t part, const Status& why) const;
  void end_part(Left& left) const;

  std::vector<std::shared_ptr<FromDisk>> reads_;  // not over, the earliest first

  const MoverLink link_;
  BlockSource* const disk_;
  PeerOutlet* const outlet_;
  std::deque<Serve> serves_;
};

}  // namespace loci
