// SPDX-License-Identifier: Apache-2.0
// Memory whose huge pages become whole again. A slot of state is smaller than a huge page: where one is given
// back the system splits the page, and what is written there later comes on small pages, which a pass reads
// more slowly. Only once all of it is in use again can it be one page.
//
//     unit (2 MiB)       0                     1
//     all in use         huge                  huge
//     give_back()        4K 4K .. .. 4K 4K     huge       a slot of unit 0 has gone: unit 0 is *split*
//     written again      4K 4K 4K 4K 4K 4K     huge
//     join_split()       huge                  huge       the system copies unit 0 into one page
//
// HugePages knows what is split. PageJoiner has a thread, `loci-pages`, that looks once a second.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "loci/base/memory_pages.h"
#include "loci/base/mutex.h"

namespace loci::cpu {

// Thread-safe, but for join_split().
class HugePages {
 public:
  // [memory, memory + bytes) outlives it, and may be on huge pages.
  HugePages(std::uint8_t* memory, std::uint64_t bytes);

  // Pages within [begin, begin + bytes) were given back to the system. O(units).
  void given_back(std::uint64_t begin, std::uint64_t bytes);
  // Asks the system to join split units that are in use as a whole again, until it has no huge page: what it
  // has not got now it may have later. Returns how many were joined. About half a millisecond each, and
  // whoever touches one meanwhile waits; O(units), a few microseconds for each that is split. Looks at 1,024
  // of those (2 GiB), and goes on behind them at the next call. For one thread.
  std::uint64_t join_split();
  std::uint64_t split() const { return split_.load(std::memory_order_relaxed); }

 private:
  bool in_use(std::uint8_t* unit) const;
  void forget(std::uint64_t unit);

  std::uint8_t* first_ = nullptr;  // unit
  std::uint64_t units_ = 0;        // whole ones
  std::uint64_t before_ = 0;       // bytes of the memory before the first unit
  std::uint64_t next_ = 0;         // the unit that join_split() looks at next
  std::unique_ptr<std::atomic<bool>[]> is_split_;
  std::atomic<std::uint64_t> split_{0};
};

// Calls `join` once a second, on a thread of its own, from start() on until it ends.
class PageJoiner {
 public:
  explicit PageJoiner(std::function<void()> join) : join_(std::move(join)) {}
  PageJoiner(const PageJoiner&) = delete;
  PageJoiner& operator=(const PageJoiner&) = delete;
  ~PageJoiner();

  // Nothing happens after the first call, nor where the system has no thread left. Thread-safe.
  void start();

 private:
  void run() EXCLUDES(mutex_);

  const std::function<void()> join_;
  Mutex mutex_;
  Condition ends_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::once_flag started_;
  std::thread thread_;
};

}  // namespace loci::cpu
