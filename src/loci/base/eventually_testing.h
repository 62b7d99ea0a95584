// SPDX-License-Identifier: Apache-2.0
// Waits for what another thread or process does, and tries again what a busy machine may spoil. The limits
// are a patience, not a promise: a busy machine may take many times what an idle one does.
#pragma once

#include <chrono>
#include <thread>

namespace loci {

// True once condition() is; false if it is not within a minute.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 12'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// True once one of so many tries returns true. Each is made anew, and returns false where it shows nothing:
// because the machine was busy, or because what it is to show is not so. The latter spoils all of them.
template <class Try>
bool in_one_try(int tries, Try once) {
  for (int i = 0; i < tries; ++i) {
    if (once()) return true;
  }
  return false;
}

}  // namespace loci
