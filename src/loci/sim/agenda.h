// SPDX-License-Identifier: Apache-2.0
// What is to happen in a run, in the order of its times. Of things at one time the order is that of their
// kinds, then that of the instances that they happen to.
//
// Thread-compatible. Deterministic. add() and next() cost O(log n), drop() O(n log n).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "loci/base/clock.h"

namespace loci::sim {

enum class Happens : std::uint8_t {
  // To a process:
  kCopied,    // a copy on the device ends
  kLayer,     // a load has brought another layer
  kPassEnd,   // a pass ends
  kPatience,  // a pass gives up waiting
  kTick,      // the core wanted to be woken
  // To clients:
  kCancel,  // a client leaves
  kDue,     // a conversation's next turn comes
  // To a machine:
  kSpell,    // a link becomes ill or well
  kDisk,     // its disk becomes slow
  kRestart,  // its process ends
  // To a cluster of several instances:
  kReturn,   // an instance that was away comes back
  kPeers,    // something between two peers arrives
  kPrefill,  // something between a decode member and a prefill member arrives
  kFeed,     // a front reads what an instance publishes
  kMembers,  // rows are renewed, and fronts read them
};

struct Happening {
  Nanos at = 0;
  Happens what = Happens::kDue;
  std::uint32_t whose = 0;  // the instance's number; 0 for clients
  std::uint64_t which = 0;
  friend auto operator<=>(const Happening&, const Happening&) = default;
};

class Agenda {
 public:
  Nanos now() const { return now_; }
  bool empty() const { return queue_.empty(); }
  void add(const Happening& one) { queue_.push(one); }
  // When the next thing happens; absent: nothing is to happen.
  std::optional<Nanos> next() const { return queue_.empty() ? std::nullopt : std::optional(queue_.top().at); }
  // Takes the next thing, and goes to its time.
  Happening take() {
    const Happening one = queue_.top();
    queue_.pop();
    now_ = one.at;
    return one;
  }
  // Goes to a time before which nothing is to happen.
  void go_to(Nanos now) { now_ = now; }
  // Drops what a process that has ended waited for.
  void drop_process(std::uint32_t instance) {
    std::vector<Happening> kept;
    for (; !queue_.empty(); queue_.pop()) {
      const Happening& one = queue_.top();
      if (one.whose != instance || one.what > Happens::kTick) kept.push_back(one);
    }
    for (const Happening& one : kept) queue_.push(one);
  }

 private:
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
  Nanos now_ = 0;
};

}  // namespace loci::sim
