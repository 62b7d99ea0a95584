// SPDX-License-Identifier: Apache-2.0
// The lives of a request and of its loads, as phases. A change to a phase that cannot follow aborts: it is a
// bug of the core, whatever its events are.
//
//                  admitted               first sample
//     kQueued ----------------> kPrompt ----------------> kDecode
//                                ^  | |                   |  |
//              admitted again    |  | |  gives way        |  |   cancelled, late or done
//     kSuspended ----------------+  | +<------------------+  |   while a pass has it
//         ^                         |  |                     v
//         +-------------------------+--+      +---------> kEnding     (else it is gone at once)
//
// A request's loads, while it runs:
//
//     kNone       none of its blocks is being loaded
//     kWaits      some are, and no pass may read them yet
//     kJoined     passes may read blocks that are still coming: they wait for them layer by layer
//     kMissed     a block that passes in flight read will not come: of this request nothing counts that
//                 they compute from the first block on that was being loaded
//     kHeldBack   a pass found that it read a block that did not come: no pass reads on before all loads
//                 have ended
//     kLost       blocks that it continued from will not come (groups with a window): what passes in flight
//                 compute before the first block that was being loaded counts; then it gives way, and looks
//                 for another place to continue from
#pragma once

#include <cstdint>

#include "loci/base/check.h"

namespace loci {

enum class RequestPhase : std::uint8_t {
  kQueued,     // it was never admitted
  kSuspended,  // it was admitted, gave way, and waits again
  kPrompt,     // in the batch; it lacks the state of more tokens than its last one
  kDecode,     // in the batch; it lacks only the state of its last token
  kEnding,     // in the batch until the first pass in flight that has spans of it has ended
};

constexpr bool may_become(RequestPhase from, RequestPhase to) {
  switch (to) {
    case RequestPhase::kQueued: return false;
    case RequestPhase::kPrompt: return from == RequestPhase::kQueued || from == RequestPhase::kSuspended;
    case RequestPhase::kDecode: return from == RequestPhase::kPrompt;
    case RequestPhase::kSuspended:
    case RequestPhase::kEnding: return from == RequestPhase::kPrompt || from == RequestPhase::kDecode;
  }
  return false;
}

enum class LoadPhase : std::uint8_t { kNone, kWaits, kJoined, kMissed, kHeldBack, kLost };

constexpr bool may_become(LoadPhase from, LoadPhase to) {
  switch (to) {
    case LoadPhase::kNone:  // all loads have ended, or it leaves the batch
      return from != LoadPhase::kNone;
    case LoadPhase::kWaits: return from == LoadPhase::kNone;
    case LoadPhase::kJoined:  // from kMissed: nothing in the passes that ended counted
      return from == LoadPhase::kWaits || from == LoadPhase::kMissed;
    case LoadPhase::kMissed: return from == LoadPhase::kJoined;
    case LoadPhase::kHeldBack:  // a pass may be poisoned in any phase of loading
      return from != LoadPhase::kLost && from != LoadPhase::kHeldBack;
    case LoadPhase::kLost: return from != LoadPhase::kNone && from != LoadPhase::kLost;
  }
  return false;
}

// A phase that changes as may_become() says. Thread-compatible.
template <class Phase>
class PhaseOf {
 public:
  Phase now() const { return now_; }
  bool is(Phase phase) const { return now_ == phase; }
  void become(Phase next) {
    LOCI_CHECK(may_become(now_, next), "one phase follows another as phases.h says");
    now_ = next;
  }
  // The same, but it may be in that phase already.
  void settle(Phase next) {
    if (now_ != next) become(next);
  }

 private:
  Phase now_{};
};

}  // namespace loci
