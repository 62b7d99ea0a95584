// SPDX-License-Identifier: Apache-2.0
// Carries state between modelled instances, as peers read it from one another
// (docs/cluster.md#state-from-one-another). An example, a request at A that lacks four blocks:
//
//     A  asks: who has a, b, c, d?                  one way later every peer is asked
//     B  has a and b; C has b and c                 one way later A hears of a, b and c
//     A  plans to load a and b from B, c from C     one way later B and C begin to give, in rounds: the first
//                                                   layers of all blocks, then the next ones
//     B  dies                                       one way later what of a and b has not come is gone
//
// A is told of each block that it wants once: it has come, or it is gone. The bytes that instances give are
// those that others got and those that were lost, when one of the two died or nobody wanted them any more.
//
// Thread-compatible. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "loci/cluster/peers/peer_places.h"
#include "loci/sim/agenda.h"
#include "loci/sim/modelled_instance.h"

namespace loci::sim {

class ModelledPeers {
 public:
  using Instances = std::vector<std::unique_ptr<ModelledInstance>>;
  struct Ways {
    Nanos latency = 0;        // of a message, one way
    std::uint8_t rounds = 1;  // of a read, if it has so many bytes:
    std::uint64_t rounds_bytes = 0;
    std::uint64_t block_bytes = 0;   // of all groups
    std::uint32_t first_asking = 0;  // instances before it ask nobody
  };
  // Both others must outlive it.
  ModelledPeers(Agenda& agenda, Instances& instances, const Ways& ways)
      : agenda_(agenda),
        instances_(instances),
        latency_(ways.latency),
        ways_(ways),
        places_(instances.size()) {}

  // Takes what the instance has for others; after each of its steps.
  void take_from(std::uint32_t instance);
  // A message arrives (Happens::kPeers).
  void arrive(std::uint64_t message);
  void died(std::uint32_t instance);

  struct Counts {
    std::uint64_t given = 0, got = 0, lost = 0;  // bytes
    std::uint64_t asks = 0;
    std::uint64_t blocks_got = 0, blocks_gone = 0;
  };
  const Counts& counts() const { return counts_; }
  // Checks that bytes are conserved; `ended`: and that nothing is under way.
  void check(bool ended) const;

 private:
  struct Question {
    std::uint32_t asker = 0;
    std::uint64_t process = 0;  // of the asker
    SharedAsk ask;
    std::vector<std::uint8_t> groups;  // what peers said
  };
  struct Read {
    std::uint32_t reader = 0, giver = 0;
    std::vector<OperationId> moves;  // of the reader, by index
    std::vector<PeerWant> wants;
    std::set<std::uint32_t> left;  // indices that have not ended
    std::uint8_t rounds = 1;
    std::vector<Nanos> first_round;  // by index: when it had come
    bool is_with_giver = false;
  };
  enum class Says : std::uint8_t { kAsk, kAnswer, kRead, kCome, kGone, kLate, kLeave };
  struct Message {
    Says says = Says::kAsk;
    std::uint64_t of = 0;  // the question's number, or the read's
    std::vector<std::uint32_t> indices;
    std::uint64_t bytes = 0;
    Nanos began = 0;
    PeerRounds rounds;          // of kCome
    std::uint32_t giver = 0;    // of kLeave
    std::uint64_t process = 0;  // of kLeave: the giver's
  };

  void take(std::uint32_t instance, Outbox out);
  void send(Message message, Nanos after);
  void begin_reads(std::uint32_t reader, const std::vector<Move>& loads);
  void ask_all(std::uint64_t number);
  void answer(std::uint64_t number);
  void read(std::uint64_t number);
  void end(std::uint64_t number, const Message& message, MoveResult result);
  void give_up(std::uint64_t number);

  Agenda& agenda_;
  Instances& instances_;
  const Nanos latency_;
  const Ways ways_;
  std::vector<PeerPlaces> places_;  // by the instance that asked
  std::map<std::uint64_t, Question> questions_;
  std::map<std::uint64_t, Read> reads_;
  std::map<std::uint64_t, Message> messages_;  // on their way
  std::uint64_t last_ = 0;
  Counts counts_;
  std::uint64_t on_way_ = 0;  // bytes
};

}  // namespace loci::sim
