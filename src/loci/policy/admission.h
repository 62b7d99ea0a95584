// In which order requests that wait are admitted. First come, first served, for now; a request that was
// suspended keeps the place that its arrival gave it, so it returns before all that came later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "loci/base/check.h"
#include "loci/base/ids.h"

namespace loci {

// Thread-compatible. O(log requests).
class FcfsQueue {
 public:
  // `arrival`: counts arrivals; unique.
  void push(std::uint64_t arrival, RequestId request) {
    const bool fresh = waiting_.emplace(arrival, request).second;
    LOCI_CHECK(fresh, "a request waits once");
  }
  void erase(std::uint64_t arrival) {
    const std::size_t erased = waiting_.erase(arrival);
    LOCI_CHECK(erased == 1, "only what waits leaves the queue");
  }
  // The next to be admitted. The queue is not empty.
  RequestId head() const { return waiting_.begin()->second; }
  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }

 private:
  std::map<std::uint64_t, RequestId> waiting_;
};

}  // namespace loci
