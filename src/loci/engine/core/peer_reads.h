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
//   - Of those that are on their way at most half come from the disk. What the disk alone has waits beyond
//     that, and lets what stands behind it pass.
//   - A step looks at kLooksMax blocks that cannot begin, and the next one goes on behind them, so that peers
//     who wait for much cost a step little.
//   - A peer's read is no use of a block: what it leads to is evicted as if it had not been.
//
// It owns the reads that wait. It calls the index and transfers. Invariants, which check_invariants() tests:
//   1. Each read waits for something or has moves on their way; what waits is counted, each wait for a group
//      at least.
//   2. The moves on their way are those that transfers have in flight.
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
  // Blocks that a step looks at in vain.
  static constexpr std::uint32_t kLooksMax = 256;

  // Both outlive it.
  PeerReads(BlockIndex& index, Transfers& transfers) : index_(index), transfers_(transfers) {}

  // O(keys · groups).
  std::vector<std::uint8_t> answer(std::span<const ChainKey> keys) const;
  // From now on its blocks wait.
  void add(const PeerRead& read, Nanos now);
  void leave(PeerReadId id);
  // A move to the peer has ended.
  void ended(PeerReadId id);
  // Begins what may begin, one read after the other. O(reads + kLooksMax + those begun + those gone), and for
  // each of the last two a move of what waits behind it.
  void serve(Nanos now, const Transfers::SaveRules& rules);
  // Nothing is given any more: what waits is gone.
  void refuse_all();
  std::vector<PeerGone> take_gone() { return std::exchange(gone_, {}); }
  Nanos next_deadline(Nanos now) const;  // O(reads)
  std::uint32_t waiting() const { return static_cast<std::uint32_t>(waiting_); }
  // Aborts on a broken invariant. O(waits).
  void check_invariants() const;

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
    std::size_t next = 0;      // of the waits, that is looked at first
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
  std::uint32_t looks_ = 0;     // of this step, in vain
  bool looked_at_all_ = true;   // the last step has, as far as there was room
  std::vector<PeerGone> gone_;  // take_gone()
};

}  // namespace loci
