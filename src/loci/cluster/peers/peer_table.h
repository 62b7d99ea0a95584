// SPDX-License-Identifier: Apache-2.0
// The peers that a server knows: each with a number, how well it answers and gives, and whether it is asked
// the next question.
//
// An example, of a server that asks at most four peers for one request. Six are listed; 1 and 2 had something
// lately, 5 has failed three times in a row:
//
//     peer           1     2     3     4     5     6
//     found          now   now   -     -     -     -
//     left alone     -     -     -     -     yes   -
//     1st question   x     x     x     x
//     2nd question   x     x     x                 x
//     3rd question   x     x     x     x
//
// Three quarters of those who are asked are the ones that had something last, then the lowest numbers; the
// rest is asked in turn, so that everybody's blocks are found some day.
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

// Shared with the calls to it, which may outlive its place in the table.
struct Peer {
  PeerAddress address;
  std::uint32_t number = 0;     // never given again; above 0
  std::uint32_t questions = 0;  // that it has not answered
  // Apart: who answers well and gives nothing is left alone too.
  PeerHealth asks, reads;
  Nanos found_at = 0;  // when it last had something

  bool is_up(Nanos now) const { return asks.is_up(now) && reads.is_up(now); }
};

// Thread-compatible. O(peers) a call, choose() also sorts them.
class PeerTable {
 public:
  static constexpr std::uint32_t kQuestionsMax = 16;  // to one peer, that it has not answered

  struct Change {
    std::vector<std::shared_ptr<Peer>> added;
    std::vector<std::uint32_t> removed;  // numbers
  };
  // Those who are listed are in the table, nobody else. A peer that stays keeps its number and its health.
  Change set(const std::vector<PeerAddress>& listed);

  // Null: it is not in the table.
  std::shared_ptr<Peer> find(std::uint32_t number) const;
  // At most so many, to be asked one question: peers that are not left alone and have not too many questions
  // to answer. Each call chooses others of those who had nothing lately.
  std::vector<std::shared_ptr<Peer>> choose(std::size_t most, Nanos now);

  std::size_t size() const { return peers_.size(); }
  std::size_t up(Nanos now) const;  // how many are not left alone

 private:
  std::map<std::uint32_t, std::shared_ptr<Peer>> peers_;  // by number
  std::uint32_t last_number_ = 0;
  std::size_t next_other_ = 0;
};

}  // namespace loci
