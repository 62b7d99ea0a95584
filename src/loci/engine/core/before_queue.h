// SPDX-License-Identifier: Apache-2.0
// Requests that have arrived and wait in no queue yet: for the answer of the store that servers share
// (shared_questions.h), or for the first tokens of a block (beginnings.h).
//
//     arrival ----> before the queue ----> queue       answered, loaded, or late: each waits until a time of
//        |                                   ^         its own, and goes on then whatever has come
//        +-----------------------------------+
//
// It owns who waits so, for what and until when (RequestBeforeQueue). It
// requires that a request enters once, and leaves before it ends, and that its tenant does not change
// meanwhile. It calls nobody. Invariants, which check_invariants() tests (core.h has all):
//   7. At most half of the places in the queue are theirs, at least one: they cannot be made to give them up.
//   10. A request knows that it waits here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/clock.h"
#include "loci/engine/core/request.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(log(those who wait)) where not said otherwise.
class BeforeQueue {
 public:
  // `queued_max`: places in the queue.
  explicit BeforeQueue(std::uint32_t queued_max) : most_(std::max(1u, queued_max / 2)) {}

  bool full() const { return waiting_.size() >= most_; }
  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  enum class For : std::uint8_t { kAnswer, kBeginning };
  // How many of the tenant's, and how many for what. O(those who wait).
  std::size_t waiting(const TenantId& tenant) const {
    return count([&](const CoreRequest& one) { return one.tenant == tenant; });
  }
  std::size_t waiting(For what) const {
    return count(
        [&](const CoreRequest& one) { return one.before_queue->for_beginning == (what == For::kBeginning); });
  }

  void enter(CoreRequest& request, For what, Nanos until) {
    LOCI_CHECK(!full() && !request.before_queue->until, "a request waits before the queue once");
    request.before_queue.change() = {.until = until, .for_beginning = what == For::kBeginning};
    waiting_.emplace(std::pair(until, request.id), &request);
  }
  void leave(CoreRequest& request) {
    waiting_.erase({*request.before_queue->until, request.id});
    request.before_queue.change() = {};
  }
  // Those who have waited long enough leave, the first of them first.
  std::vector<CoreRequest*> take_late(Nanos now) {
    std::vector<CoreRequest*> late;
    while (next() <= now && !empty()) {
      late.push_back(waiting_.begin()->second);
      leave(*late.back());
    }
    return late;
  }
  // Those leave who wait for the first tokens of a block, and of whom `has_come` is true. O(those who wait).
  std::vector<CoreRequest*> take_begun(const std::function<bool(const CoreRequest&)>& has_come) {
    std::vector<CoreRequest*> begun;
    for (const auto& [place, request] : waiting_) {
      if (request->before_queue->for_beginning && has_come(*request)) begun.push_back(request);
    }
    for (CoreRequest* request : begun) leave(*request);
    return begun;
  }

  // When the first has waited long enough; kNever: nobody waits.
  Nanos next() const { return waiting_.empty() ? kNever : waiting_.begin()->first.first; }

  // Aborts on a broken invariant.
  void check_invariants() const {
    LOCI_CHECK(waiting_.size() <= most_, "invariant 7: half of the places at most");
    for (const auto& [place, request] : waiting_)
      LOCI_CHECK(
          request->before_queue->until == place.first && request->id == place.second && !request->runs(),
          "invariant 10: who waits before the queue is known");
  }

 private:
  template <class Is>
  std::size_t count(const Is& is) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(waiting_, [&](const auto& entry) { return is(*entry.second); }));
  }

  std::size_t most_;
  std::map<std::pair<Nanos, RequestId>, CoreRequest*> waiting_;  // by until when
};

}  // namespace loci
