// SPDX-License-Identifier: Apache-2.0
// Requests that arrive: whether they can be taken, and what the core knows of them from then on.
//
// An example: a queue of four places, whose tenants have the same weight.
//
//     queue   a a a b      c arrives: no place is free. a has most, and c would have less: a gives up its
//                          newest place, if that request has not begun
//     queue   a a b c      a arrives: nobody has more than a would have. It is refused
//
// It owns the order of arrival, and makes what is known of a request from then on (RequestFacts). It requires
// that a request's id is new. It calls the prefixes, the windows, the deadlines, the queue and who waits
// before it. Invariants, which check_invariants() tests (core.h has all):
//   7. A request has a prompt and some weight, and its reply has an end within the context.
//   10. Each arrival has a number of its own, and the next one's is greater.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/engine/core/before_queue.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/deadlines.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/windows.h"
#include "loci/policy/admission.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(tokens) where not said otherwise.
class Arrivals {
 public:
  // `config` has limited windows. All six must outlive it.
  Arrivals(const CoreConfig& config, const Prefixes& prefixes, const Windows& windows,
           const Deadlines& deadlines, const FairQueue& queue, const BeforeQueue& before_queue)
      : config_(config),
        prefixes_(prefixes),
        windows_(windows),
        deadlines_(deadlines),
        queue_(queue),
        before_queue_(before_queue) {}

  // Ok: the request can be taken. `computed`: how many blocks of other public prefixes are still to be
  // computed (of a public arrival alone). Together public prefixes hold at most half of each pool, and leave
  // room for a window.
  Status refusal(const Arrival& event, std::uint64_t computed) const;

  // All that wait. O(1).
  std::size_t waiting() const { return queue_.size() + before_queue_.size(); }
  bool full() const { return waiting() >= config_.max_queued; }
  // The queue is full: whose place is for the request, if that one has not begun; absent: nobody's. Whoever
  // has most in the queue for its weight gives up its newest place to one that would have less. Those who
  // wait before the queue have places too, but give up none. O(those before the queue).
  std::optional<RequestId> gives_place(const Arrival& event) const;

  // Takes what the event has. O(1), if it brought its keys and nothing of it was dropped.
  std::unique_ptr<CoreRequest> make(Arrival&& event, Nanos now);

  // `requests`: all of them. Aborts on a broken invariant. O(requests · log).
  void check_invariants(std::span<const CoreRequest* const> requests) const;

 private:
  Status public_refusal(const Arrival& event, std::uint64_t computed) const;
  std::size_t waiting_of(const TenantId& tenant) const;

  const CoreConfig& config_;
  const Prefixes& prefixes_;
  const Windows& windows_;
  const Deadlines& deadlines_;
  const FairQueue& queue_;
  const BeforeQueue& before_queue_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace loci
