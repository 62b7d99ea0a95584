// SPDX-License-Identifier: Apache-2.0
// The peers that a server knows. Each has a number and a health; the table chooses which peers are asked the
// next question.
//
// An example, of a server that asks at most four peers for one request. Six are listed; 1 and 2 had blocks
// lately, 5 has failed three times in a row:
//
//     peer           1     2     3     4     5     6
//     found          now   now   -     -     -     -
//     left alone     -     -     -     -     yes   -
//     1st question   x     x     x     x
//     2nd question   x     x     x                 x
//     3rd question   x     x     x     x
//
// Three quarters of the peers that are asked are those that had blocks last, then those with the lowest
// numbers. The rest are asked in turn, so that the blocks of every peer are found some time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "loci/base/clock.h"
#include "loci/cluster/peers/peer_health.h"
#include "loci/cluster/peers/peer_list.h"

namespace loci {

// A peer. It is shared with calls to it, which may outlive its place in the table.
struct Peer {
  PeerAddress address;
  std::uint32_t number = 0;     // above 0; never used for another peer
  std::uint32_t questions = 0;  // questions that it has not answered yet
  // These are separate, so that a peer which answers well but gives nothing is left alone too.
  PeerHealth asks, reads;
  std::uint32_t partial_reads = 0;  // in a row that brought first layers, and no block whole
  Nanos found_at = 0;               // when it last had a block

  bool is_up(Nanos now) const { return asks.is_up(now) && reads.is_up(now); }
};

// Thread-compatible. Each call costs O(peers); choose() also sorts them.
class PeerTable {
 public:
  static constexpr std::uint32_t kQuestionsMax = 16;  // unanswered questions to one peer

  struct Change {
    std::vector<std::shared_ptr<Peer>> added;
    std::vector<std::uint32_t> removed;  // numbers
  };
  // Makes the table hold exactly the listed peers. A peer that stays keeps its number and its health.
  Change set(const std::vector<PeerAddress>& listed);

  // Null: it is not in the table.
  std::shared_ptr<Peer> find(std::uint32_t number) const;
  // Notes that the peer has blocks now.
  void note_found(const PeerAddress& address, Nanos now);
  // Chooses at most `most` peers to be asked one question: peers that are not left alone and do not have too
  // many questions to answer. Of those that had nothing lately each call chooses others.
  std::vector<std::shared_ptr<Peer>> choose(std::size_t most, Nanos now);

  std::size_t size() const { return peers_.size(); }
  std::size_t up(Nanos now) const;  // how many are not left alone

 private:
  std::map<std::uint32_t, std::shared_ptr<Peer>> peers_;  // by number
  std::uint32_t last_number_ = 0;
  std::size_t next_other_ = 0;
};

}  // namespace loci
