// SPDX-License-Identifier: Apache-2.0
// Waits for what another thread or process does. The limit is a patience, not a promise: a busy machine may
// take many times what an idle one does.
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

}  // namespace loci
