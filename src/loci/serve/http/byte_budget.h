// SPDX-License-Identifier: Apache-2.0
// A bound on bytes that many requests hold at the same time: their bodies, the answers that their clients
// have yet to take, or what a front keeps of them. So many connections can't fill the memory with what is
// small enough for each.
//
// Bytes are divided among parties, each of which is a tenant, or an address where requests have no keys. All
// that one party holds is at most kTimesRest times what nobody holds, so one that comes later finds room. Of
// 100 bytes, if each party wants all that it can get:
//
//     held by a   by b   by c   by nobody
//          80       .      .      20         a holds four times the rest
//          80      16      .       4
//          80      16      3       1
//
// What PastShare names may take all that is left, past its party's share. The first kFreeBytes of each thing
// are not counted (connections bound them), so that small requests are served while large ones wait.
//
// Thread-safe. A charge is its owner's alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "loci/base/mutex.h"

namespace loci {

enum class PastShare : std::uint8_t {
  kWhatIsAlone,   // the one thing that a party holds: else nothing larger than a share could pass
  kWhatHasBegun,  // whatever holds bytes already: it goes on
};

class ByteBudget {
 public:
  static constexpr std::uint64_t kFreeBytes = 64 << 10;
  static constexpr std::uint64_t kTimesRest = 4;

  explicit ByteBudget(std::uint64_t bytes_max, PastShare past_share = PastShare::kWhatIsAlone)
      : past_share_(past_share), left_(bytes_max) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // What one body, answer or reply holds of the budget; gives it back when it ends. The budget must outlive
  // it.
  class Charge {
   public:
    explicit Charge(ByteBudget& budget, std::string party = {})
        : budget_(&budget), party_(std::move(party)) {}
    ~Charge() { release(); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

    // What it held for another party is given back.
    void charge_to(std::string party) {
      release();
      party_ = std::move(party);
    }
    // The thing has so many bytes now; the charge never shrinks. False: the budget has no room for them, and
    // nothing has changed. O(log parties).
    [[nodiscard]] bool grow_to(std::uint64_t bytes) {
      const std::uint64_t wanted = std::max(charged_, bytes - std::min(bytes, kFreeBytes));
      if (!budget_->take(party_, wanted - charged_, charged_)) return false;
      charged_ = wanted;
      return true;
    }
    void release() { budget_->give_back(party_, std::exchange(charged_, 0)); }

   private:
    ByteBudget* budget_;
    std::string party_;
    std::uint64_t charged_ = 0;
  };

 private:
  // `charged`: what the thing that grows has.
  bool take(const std::string& party, std::uint64_t bytes, std::uint64_t charged) EXCLUDES(mutex_) {
    if (bytes == 0) return true;
    const MutexLock lock(mutex_);
    if (bytes > left_) return false;
    const auto found = held_.find(party);
    const std::uint64_t held = found == held_.end() ? 0 : found->second;
    const bool is_bound = past_share_ == PastShare::kWhatIsAlone ? held > charged : charged == 0;
    if (is_bound && (held + bytes) / kTimesRest > left_ - bytes) return false;
    left_ -= bytes;
    held_[party] = held + bytes;
    return true;
  }
  void give_back(const std::string& party, std::uint64_t bytes) EXCLUDES(mutex_) {
    if (bytes == 0) return;
    const MutexLock lock(mutex_);
    left_ += bytes;
    const auto found = held_.find(party);
    if ((found->second -= bytes) == 0) held_.erase(found);
  }

  const PastShare past_share_;
  Mutex mutex_;
  std::uint64_t left_ GUARDED_BY(mutex_);                         // that nobody holds
  std::map<std::string, std::uint64_t> held_ GUARDED_BY(mutex_);  // by party; more than 0
};

}  // namespace loci
