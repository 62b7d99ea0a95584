// SPDX-License-Identifier: Apache-2.0
// What other servers of the cluster, peers, want of this one's state: asked by key, given from wherever it
// is (MemServe §4.3's transfer, turned round: who needs state pulls it).
//
// An example: a peer reads four blocks. K: the state is there; k: it is being computed.
//
//     block     a   b   c   d
//     device    K   .   k   .     read(): a and b are on their way at once (Transfers::serve), each held
//     disk      .   K   .   .     where it is until its bytes are copied. c waits. d is gone: the peer is
//                                 told, and computes it.
//
//     device    .   .   K   .     a was evicted meanwhile, which hurts nobody. c is whole, and follows. Had
//                                 it not come within kComingMax it would be gone too.
//
// The rules:
//   - Nothing is kept for a peer: what it was said to find may be gone when it reads.
//   - A few blocks are on their way at a time, of one read and of all together; the others wait in order, and
//     cost nothing but their entry. What is beyond the bound of those is gone.
//   - A peer's read is no use of a block: what it leads to is evicted as if it had not been.
//
// It owns the reads that wait. It calls the index and transfers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "loci/engine/core/plan.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible: the core's thread has it.
class PeerReads {
 public:
  // What is being computed or comes from a slower tier is waited for so long.
  static constexpr Nanos kComingMax = 2 * kNanosPerSecond;

  // Both outlive it.
  PeerReads(BlockIndex& index, Transfers& transfers) : index_(index), transfers_(transfers) {}

  // O(keys · groups).
  std::vector<std::uint8_t> answer(std::span<const ChainKey> keys) const;
  // From now on its blocks wait.
  void add(const PeerRead& read, Nanos now);
  void leave(PeerReadId id);
  // A move to the peer has ended.
  void ended(PeerReadId id);
  // Begins what may begin, one read after the other. O(reads + blocks that wait for somebody to fill them +
  // those begun + those gone).
  void serve(Nanos now, const Transfers::SaveRules& rules);
  // Nothing is given any more: what waits is gone.
  void refuse_all();
  std::vector<PeerGone> take_gone() { return std::exchange(gone_, {}); }
  Nanos next_deadline(Nanos now) const;  // O(reads)
  std::uint32_t waiting() const { return static_cast<std::uint32_t>(waiting_); }

 private:
  struct Wait {
    std::uint32_t index = 0;  // PeerPlace::index
    ChainKey key;
    std::uint8_t groups = 0;  // that are neither begun nor gone
  };
  struct Read {
    Nanos deadline = 0;
    Nanos coming_until = 0;  // then what is not there yet is gone
    std::deque<Wait> waits;
    std::uint32_t on_way = 0;  // moves
  };

  void serve_read(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules);
  bool serve_block(PeerReadId id, Read& read, Wait& wait, Nanos now, const Transfers::SaveRules& rules);
  void drop_waits(PeerReadId id, Read& read);

  BlockIndex& index_;
  Transfers& transfers_;
  std::map<PeerReadId, Read> reads_;  // that wait, or whose moves are on their way
  std::size_t waiting_ = 0;           // blocks, of all reads
  PeerReadId served_last_;
  std::vector<PeerGone> gone_;  // take_gone()
};

}  // namespace loci
