// SPDX-License-Identifier: Apache-2.0
// How long a pass will still wait for arriving blocks, over all its waits together.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "loci/base/clock.h"
#include "loci/compute/backend.h"

namespace loci {

// Thread-compatible; used by the thread that waits.
class Patience {
 public:
  explicit Patience(Nanos left = kWaitsForEver) : left_(left) {}

  // Waits until `word` is no longer `value`. False: patience ended first; later calls then return at once.
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    if (left_ == kWaitsForEver) {
      word.wait(value, std::memory_order_acquire);
      return true;
    }
    // An atomic has no wait with a time limit, so it is polled: at first all the time, then at intervals that
    // grow with this wait. What brings the blocks may need this processor.
    constexpr Nanos kBusy = 200'000, kBusyInAll = 2'000'000, kLookMin = 50'000, kLookMax = 500'000;
    const auto begin = std::chrono::steady_clock::now();
    const Nanos busy = std::min(kBusy, kBusyInAll - busy_);
    Nanos waited = 0;
    bool changed = word.load(std::memory_order_acquire) != value;
    while (!changed && waited < left_) {
      if (waited < busy) {
        std::this_thread::yield();
      } else {
        const Nanos look = std::clamp(waited / 8, kLookMin, kLookMax);
        std::this_thread::sleep_for(std::chrono::nanoseconds(look));
      }
      waited = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
      changed = word.load(std::memory_order_acquire) != value;
    }
    busy_ += std::min(busy, waited);
    left_ -= std::min(left_, waited);
    return changed;
  }

 private:
  Nanos left_;
  Nanos busy_ = 0;  // how long it has polled so far without sleeping
};

}  // namespace loci
