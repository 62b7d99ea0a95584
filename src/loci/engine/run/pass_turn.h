// SPDX-License-Identifier: Apache-2.0
// Lets the compute thread step the core before the core's thread takes its next event: the device waits for
// it. A mutex alone does not: who lets it go and takes it again at once has it before who was asleep.
//
//     compute        claim()  ... waits ...      has the mutex: taken()
//     core      event  is_claimed(): unlocks  let_go_first() ......... locks, next event
#pragma once

#include <atomic>

namespace loci {

// Thread-safe; one thread claims, another lets it go first.
class PassTurn {
 public:
  // Before the mutex is taken, and once it has been.
  void claim() { claimed_.store(true); }
  void taken() {
    claimed_.store(false);
    claimed_.notify_one();
  }

  bool is_claimed() const { return claimed_.load(); }
  // Waits until nobody claims. With the mutex not held.
  void let_go_first() const { claimed_.wait(true); }

 private:
  std::atomic<bool> claimed_ = false;
};

}  // namespace loci
