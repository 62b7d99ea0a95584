// SPDX-License-Identifier: Apache-2.0
// Reads of this server's state by other servers of the cluster, its peers. A peer asks by key, and the state
// is given from wherever it is. (This is MemServe §4.3's transfer the other way round: the server that needs
// state pulls it.)
//
// An example: a peer reads four blocks. K: the state is there; k: it is being computed.
//
//     block     a   b   c   d
//     device    K   .   k   .     read(): a and b are on their way at once (Transfers::serve), each held
//     disk      .   K   .   .     where it is until the peer has taken its bytes. c waits. d is gone: the
//                                 peer is told, and computes it.
//
//     device    .   .   K   .     a was evicted meanwhile, which hurts nobody. c is whole, and follows. Had
//                                 it not come within kComingMax it would be gone too.
//
// A read may have rounds, so that the peer can compute with first layers while later ones come. With two:
//
//     on their way    a1 b*  |  c1 a2 c2      1: the first half of the layers; 2: the second; *: all, as
//                                             reads of the disk are whole
//
// The rules:
//   - Nothing is kept for a peer: blocks that it was told of may be gone when it reads them, and the later
//     layers of a block when it has the first ones. A block is held while some of its layers are on their
//     way, not from round to round: that would hold all blocks of a read until its end.
//   - A round of a block begins when the rounds before it have begun. First layers go before later ones.
//   - Once half of a read's time is over, blocks are finished instead, in the order of the read: each that
//     begins brings all of its layers that are left. So of a read that its deadline cuts about two thirds of
//     the blocks have come that would have come one by one; in rounds alone no block is whole before the last
//     one.
//   - Only a few blocks are in flight at a time, of one read and of all together. The others wait in order
//     and cost only their entry. Blocks beyond the bound on waiting ones count as gone.
//   - At most half of the blocks in flight come from the disk. Further blocks that only the disk has wait,
//     and let the blocks behind them pass.
//   - A step looks at no more than kLooksMax blocks that cannot begin, and the next step continues after
//     them, so that peers that wait for many blocks cost a step little.
//   - A peer's read does not count as a use: the block is evicted as if nobody had read it.
//
// It owns the waiting reads. It requires that a read's number is new, that the end of each of its moves is
// told, and that serve() is called in each step. It calls the index and the transfers. Invariants, which
// check_invariants() tests (core.h has all):
//   7. Each read waits for blocks, each for at least one group and one of the read's rounds, or has moves in
//      flight.
//   10. Waiting blocks are counted; its moves in flight are those of the transfers.
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

// Thread-compatible; used by whoever steps the core.
class PeerReads {
 public:
  // A block that is being computed, or comes from a slower tier, is waited for this long.
  static constexpr Nanos kComingMax = 2 * kNanosPerSecond;
  // How many blocks a step looks at in vain.
  static constexpr std::uint32_t kLooksMax = 256;

  // Both must outlive it.
  PeerReads(BlockIndex& index, Transfers& transfers) : index_(index), transfers_(transfers) {}

  // O(keys · groups).
  std::vector<std::uint8_t> answer(std::span<const ChainKey> keys) const;
  // Adds a read, whose blocks wait from now on.
  void add(const PeerRead& read, Nanos now);
  void leave(PeerReadId id);
  // A move to the peer has ended.
  void ended(PeerReadId id);
  // Begins the blocks that may begin, one read after the other. Costs O(reads + kLooksMax + blocks begun +
  // blocks gone); each of the last two also moves the entries that wait behind it.
  void serve(Nanos now, const Transfers::SaveRules& rules);
  // Ends giving: all waiting blocks count as gone.
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
    std::uint8_t groups = 0;  // groups that are neither begun nor gone
    std::uint8_t round = 0;   // that is to begin next
  };
  struct Read {
    Nanos deadline = 0;
    Nanos coming_until = 0;  // when blocks that have not come count as gone
    Nanos finish_from = 0;   // when half of its time is over
    bool finishes = false;   // it is, and `later` is in the order of the read
    std::uint8_t rounds = 1;
    std::deque<Wait> waits;
    std::size_t next = 0;      // index of the waiting block to look at first
    std::deque<Wait> later;    // blocks of which a round has begun and another is left; earlier rounds first,
                               // or in the order of the read
    std::uint32_t on_way = 0;  // moves in flight

    bool waits_for_none() const { return waits.empty() && later.empty(); }
  };

  void finish_blocks(Read& read);
  void serve_read(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules);
  void serve_waits(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules);
  void serve_later(PeerReadId id, Read& read, Nanos now, const Transfers::SaveRules& rules);
  bool serve_block(PeerReadId id, Read& read, Wait& wait, Nanos now, const Transfers::SaveRules& rules);
  void drop_waits(PeerReadId id, Read& read);

  BlockIndex& index_;
  Transfers& transfers_;
  std::map<PeerReadId, Read> reads_;  // those that wait or have moves in flight
  std::size_t waiting_ = 0;           // waiting blocks of all reads
  PeerReadId served_last_;
  std::uint32_t looks_ = 0;     // vain looks in this step
  bool looked_at_all_ = true;   // the last step looked at all blocks, as far as there was room
  std::vector<PeerGone> gone_;  // take_gone()
};

}  // namespace loci
