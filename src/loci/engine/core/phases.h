// SPDX-License-Identifier: Apache-2.0
// The lives of a request and of its loads, as phases. A phase that cannot follow another one aborts: that is
// a mistake of the core's, whatever its events say.
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
//     kNone       nothing of it is being loaded
//     kWaits      something is, and no pass may read that yet
//     kJoined     passes may read what is still coming: they wait for it layer by layer
//     kMissed     something that passes in flight read will not come: they bring nothing of it
//                 from the first block on that was being loaded
//     kHeldBack   a pass found that it read what did not come: none reads on before all loads have ended
//     kLost       what it went on from will not come (groups with a window): it gives way, and looks for
//                 another place
#pragma once

#include <cstdint>

#include "loci/base/check.h"

namespace loci {

enum class RequestPhase : std::uint8_t {
  kQueued,     // was never admitted
  kSuspended,  // was, gave way, and waits again
  kPrompt,     // in the batch: lacks the state of more than its last token
  kDecode,     // in the batch: lacks the state of its last token alone
  kEnding,     // in the batch: is gone when the first pass in flight that has spans of it has ended
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
    case LoadPhase::kNone:  // all have ended, or it leaves the batch
      return from != LoadPhase::kNone;
    case LoadPhase::kWaits: return from == LoadPhase::kNone;
    case LoadPhase::kJoined:  // from kMissed: the passes that ended had nothing that counted
      return from == LoadPhase::kWaits || from == LoadPhase::kMissed;
    case LoadPhase::kMissed: return from == LoadPhase::kJoined;
    case LoadPhase::kHeldBack:  // a pass may be poisoned whatever is being loaded
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
  // The same where it may be in that phase already.
  void settle(Phase next) {
    if (now_ != next) become(next);
  }

 private:
  Phase now_{};
};

}  // namespace loci
