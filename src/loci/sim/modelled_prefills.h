// SPDX-License-Identifier: Apache-2.0
// Prompts that prefill members compute before decode members write the replies, between modelled instances
// (docs/decisions/roles.md). An example, a request at D whose prompt P computes:
//
//     D  asks P                    one way later it is a request of one token there
//     P  has begun                 one way later D waits however long it takes, up to kPrefillLimitMax
//     P  has computed 512 tokens   one way later D reads their state, as any state of a peer, for a request
//                                  of one token (early_read_pace.h)
//     P  has computed it           one way later D goes on, and finds its state at a peer
//     P  dies, or refuses          one way later D goes on, and computes it
//
// P begins within a limited time, or D goes on without it. If D dies, or the client leaves, P is told and
// stops.
//
// Thread-compatible. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "loci/engine/core/plan.h"
#include "loci/serve/generation/early_read_pace.h"
#include "loci/serve/generation/prefill.h"
#include "loci/sim/agenda.h"
#include "loci/sim/modelled_peers.h"

namespace loci::sim {

class ModelledPrefills {
 public:
  // Both others must outlive it. `latency`: of a message, one way.
  // `reads_below`: an instance where fewer requests run reads state while it is computed; 0: at the end
  // alone.
  ModelledPrefills(Agenda& agenda, ModelledPeers::Instances& instances, Nanos latency,
                   std::uint32_t reads_below)
      : agenda_(agenda), instances_(instances), latency_(latency), reads_below_(reads_below) {}

  struct Places {
    std::uint32_t decode = 0, prefill = 0;  // instances
  };
  // The request's instance asks another one, which begins within `begin_limit`.
  void ask(Arrival asked, PromptNames names, Places places, Nanos begin_limit);
  bool waits(RequestId request) const { return waiting_.contains(request.value); }
  // Nobody waits for it any more. It must be waited for.
  void leave(RequestId request);
  // Takes what the instance has computed; after each of its steps.
  void take_from(std::uint32_t instance);
  void died(std::uint32_t instance);

  struct Ended {
    RequestId request;
    PrefillEnd end = PrefillEnd::kDone;
    std::uint32_t computed = 0;  // tokens, if it is done
    EarlyReadPace reads;         // what was read meanwhile
  };
  // A message arrives (Happens::kPrefill). Present: with it a wait is over.
  std::optional<Ended> arrive(std::uint64_t message);

  bool empty() const { return waiting_.empty(); }

 private:
  enum class Says : std::uint8_t { kAsk, kGoesOn, kEnd, kLook, kLeave };
  struct Waiting {
    std::uint64_t which_try = 0;
    Places at;
    std::uint64_t process = 0, decode_process = 0;  // of these instances
    Arrival arrival;
    std::shared_ptr<EarlyReadPace> reads = std::make_shared<EarlyReadPace>();
    PromptNames names;
    bool is_there = false;  // it has been asked
    Nanos until = 0;        // nobody waits for longer
  };
  struct Message {
    Says says = Says::kAsk;
    RequestId id;                        // prefill_id()
    std::uint32_t prefill = 0;           // of kLeave
    std::uint64_t process = 0;           // of kLeave
    PrefillEnd end = PrefillEnd::kDone;  // of kEnd
    std::uint32_t tokens = 0;            // Asides::News
  };

  void send(const Message& message, Nanos after);
  void ask_now(Waiting& waiting, RequestId id);
  void read(Waiting& waiting, RequestId id, std::uint32_t ready);
  void cancel_read(const Waiting& waiting, RequestId id);
  void send_leave(const Waiting& waiting, RequestId id);
  Ended end(RequestId id, PrefillEnd end, std::uint32_t computed);
  // The wait that this is about; null: it is over.
  Waiting* find(RequestId id);

  Agenda& agenda_;
  ModelledPeers::Instances& instances_;
  const Nanos latency_;
  const std::uint32_t reads_below_;
  std::map<std::uint64_t, Waiting> waiting_;   // by request
  std::map<std::uint64_t, Message> messages_;  // on their way
  std::uint64_t last_ = 0, tries_ = 0;
};

}  // namespace loci::sim
