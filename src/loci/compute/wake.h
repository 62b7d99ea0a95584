// SPDX-License-Identifier: Apache-2.0
// Wakes the threads that sleep in std::atomic::wait() on a word.
//
// notify_all() of libstdc++ asks nobody to wake up if its count of sleepers is zero. A processor may read
// that count before others see the store that came before it:
//
//     who stores                              who waits
//     word = new     (in the store buffer)
//     count == 0?    nobody sleeps            ++count, word == old: sleeps
//     (now word is new in memory)             ... for ever
//
// An exchange of the word with itself, sequentially consistent, lets one of the two see the other, whatever
// order the store has. (A fence would too, but the thread sanitizer knows none.)
#pragma once

#include <atomic>
#include <cstdint>

namespace loci {

// After `word` was changed. Thread-safe.
inline void wake_all(std::atomic<std::uint32_t>& word) {
  word.fetch_add(0, std::memory_order_seq_cst);
  word.notify_all();
}

}  // namespace loci
