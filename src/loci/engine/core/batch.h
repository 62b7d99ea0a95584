// SPDX-License-Identifier: Apache-2.0
// The requests that run, in order of arrival. It owns their order; the requests are the machine's. It
// requires that a request leaves before it ends. It calls nobody. Invariants, which check_invariants() tests
// (core.h has all):
//   7. The batch is bounded, and in order of arrival.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/check.h"
#include "loci/engine/core/request.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(1) where not said otherwise.
class Batch {
 public:
  // `most`: that run at once.
  explicit Batch(std::uint32_t most) : most_(most) {}

  std::uint32_t most() const { return most_; }
  std::size_t size() const { return running_.size(); }
  bool empty() const { return running_.empty(); }
  bool full() const { return running_.size() >= most_; }
  // The earliest arrival first. Valid until one enters or leaves.
  std::span<CoreRequest* const> requests() const { return running_; }
  auto begin() const { return running_.begin(); }
  auto end() const { return running_.end(); }
  CoreRequest& operator[](std::size_t place) const { return *running_[place]; }
  // O(size).
  bool any(RequestPhase phase) const {
    return std::ranges::any_of(running_, [phase](const CoreRequest* one) { return one->phase.is(phase); });
  }

  // O(size).
  void enter(CoreRequest& request) {
    LOCI_CHECK(!full(), "invariant 7: a bounded batch");
    const auto place = std::ranges::upper_bound(running_, request.arrival, {}, &CoreRequest::arrival);
    running_.insert(place, &request);
  }
  void leave(CoreRequest& request) { running_.erase(std::ranges::find(running_, &request)); }

  // Aborts on a broken invariant.
  void check_invariants() const {
    LOCI_CHECK(running_.size() <= most_, "invariant 7: a bounded batch");
    LOCI_CHECK(std::ranges::is_sorted(running_, {}, &CoreRequest::arrival),
               "invariant 7: the batch is in order of arrival");
  }

 private:
  std::uint32_t most_;
  std::vector<CoreRequest*> running_;
};

}  // namespace loci
