// SPDX-License-Identifier: Apache-2.0
// Until when requests may take, and until when all of them may once the server drains.
//
//     add(a until 30)  add(b: for ever)  drain(50)     next: 30
//     now 30: due a, which ends                        next: 50, when b ends too, and saves are begun no more
//
// It owns both. It requires that a request's deadline does not change, and that whoever ends, or waits for
// its last pass alone, is dropped. It calls nobody. Invariants, which check_invariants() tests (core.h has
// all):
//   10. Exactly those have a deadline here who are there and have one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/request.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(log requests).
class Deadlines {
 public:
  void add(const CoreRequest& request) {
    if (request.deadline != kNever) of_.emplace(request.deadline, request.id);
  }
  // Nothing happens where it has none.
  void drop(const CoreRequest& request) { of_.erase({request.deadline, request.id}); }
  // Whose time has come; absent: nobody's.
  std::optional<RequestId> due(Nanos now) const {
    return of_.empty() || of_.begin()->first > now ? std::nullopt : std::optional(of_.begin()->second);
  }

  // The server drains, and by then all requests end. The earliest such time counts.
  void drain(Nanos until) { drain_ = std::min(until, drain_.value_or(kNever)); }
  bool drains() const { return drain_.has_value(); }
  Nanos drain_deadline() const { return drain_.value_or(kNever); }
  bool drain_is_over(Nanos now) const { return drain_ && *drain_ <= now; }

  // The first time after `now` at which somebody's has come; kNever: there is none. `any`: there are
  // requests.
  Nanos next(Nanos now, bool any) const {
    const Nanos first = of_.empty() ? kNever : of_.begin()->first;
    return any && drain_ && *drain_ > now ? std::min(first, *drain_) : first;
  }

  // `count`: of requests that have a deadline and are not ending. Aborts on a broken invariant.
  void check_invariants(std::size_t count) const {
    LOCI_CHECK(of_.size() == count, "invariant 10: whoever may take until a time has it here");
  }

 private:
  std::set<std::pair<Nanos, RequestId>> of_;
  std::optional<Nanos> drain_;
};

}  // namespace loci
