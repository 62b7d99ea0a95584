// SPDX-License-Identifier: Apache-2.0
// A bound on the bytes of all requests' bodies together, so that many connections can't fill the memory with
// what is small enough for each. A body is charged as its bytes arrive, not when its length is announced: a
// client that sends nothing holds nothing. A body's first kFreeBytes are not charged (connections bound
// them), so that small requests are served while large ones wait.
//
// Thread-compatible: the network thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace loci {

class BodyBudget {
 public:
  static constexpr std::uint64_t kFreeBytes = 64 << 10;

  explicit BodyBudget(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // What one body holds of the budget; gives it back when it ends. The budget must outlive it.
  class Charge {
   public:
    explicit Charge(BodyBudget& budget) : budget_(&budget) {}
    ~Charge() { release(); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

    // The body has so many bytes now. False: the budget has no room for them, and nothing has changed.
    bool grow_to(std::uint64_t body_bytes) {
      const std::uint64_t wanted = std::max(charged_, body_bytes - std::min(body_bytes, kFreeBytes));
      if (wanted - charged_ > budget_->bytes_max_ - budget_->bytes_used_) return false;
      budget_->bytes_used_ += wanted - std::exchange(charged_, wanted);
      return true;
    }
    void release() { budget_->bytes_used_ -= std::exchange(charged_, 0); }

   private:
    BodyBudget* budget_;
    std::uint64_t charged_ = 0;
  };

 private:
  std::uint64_t bytes_max_;
  std::uint64_t bytes_used_ = 0;  // at most bytes_max_
};

}  // namespace loci
