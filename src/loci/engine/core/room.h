// SPDX-License-Identifier: Apache-2.0
// Whether what lacked room is worth another try: room was given back since, or something came that is needed.
//
//     block(a)      a, first in the queue, lacks blocks: is_blocked(a)
//     block(b)      b, which may pass a (giving_way.h), lacks blocks too
//     changed()     something was let go: a and b may be tried again, and so may every load ahead that lacked
//                   room
//
// It owns who is blocked, and how often room has changed. It requires that changed() is called when who is
// blocked leaves the queue. It calls nobody. Invariants, which check_invariants() tests (core.h has all):
//   7. Who is blocked waits in the queue: nobody else is kept from being tried.
//   10. Changes are counted from 1 on, and never back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/ids.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(those that are blocked), which are few.
class Room {
 public:
  // Blocks were let go or have come, or what is known of a waiting request has changed.
  void changed() {
    blocked_.clear();
    ++changes_;
  }
  // A head of the queue, which was not blocked, lacks blocks while none is let go.
  void block(RequestId head) { blocked_.push_back(head); }
  bool is_blocked(RequestId request) const { return std::ranges::find(blocked_, request) != blocked_.end(); }
  // Another number after each change; never 0.
  std::uint64_t changes() const { return changes_; }

  // `waits`: whether a request is in the queue; `seen`: the latest change that somebody has remembered, 0 at
  // first. Aborts on a broken invariant.
  void check_invariants(const std::function<bool(RequestId)>& waits, std::uint64_t seen) const {
    LOCI_CHECK(std::ranges::all_of(blocked_, waits), "invariant 7: who is blocked waits in the queue");
    LOCI_CHECK(changes_ > 0 && seen <= changes_, "invariant 10: nobody has seen a change that did not come");
  }

 private:
  std::vector<RequestId> blocked_;
  std::uint64_t changes_ = 1;
};

}  // namespace loci
