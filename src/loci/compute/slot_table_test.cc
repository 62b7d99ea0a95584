// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/slot_table.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"

namespace loci {
namespace {

using Slots = std::vector<SlotId>;

Slots of(const SharedSlots& shared) { return {shared.begin(), shared.end()}; }
Slots of(const SlotTable& table) {
  Slots slots;
  for (std::size_t i = 0; i < table.size(); ++i) slots.push_back(table[i]);
  return slots;
}

// A table beside a plain vector, which the same changes are made to.
struct Pair {
  SlotTable table;
  Slots plain;

  void push_back(SlotId slot) {
    table.push_back(slot);
    plain.push_back(slot);
  }
  // One random change, of those that a request's table goes through.
  void change(Random& random) {
    const SlotId slot(static_cast<std::uint32_t>(random.below(5)));
    const std::uint64_t what = random.below(100);
    if (what < 60 || plain.empty()) return push_back(slot);
    if (what < 95) {
      const std::size_t block = random.below(plain.size());
      table.set(block, slot);
      plain[block] = slot;
    } else if (what < 98) {
      table.pop_back();
      plain.pop_back();
    } else if (what < 99) {
      table.reserve(random.below(200));
    } else {
      table.clear();
      plain.clear();
    }
  }
};

// What was shared, and what the table had then.
struct Held {
  SharedSlots shared;
  Slots expected;
};

Held share(Pair& pair, Random& random) {
  const std::size_t count = random.below(pair.plain.size() + 1);
  return {pair.table.share(count), {pair.plain.begin(), pair.plain.begin() + static_cast<long>(count)}};
}

TEST(SlotTable, HasWhatAVectorHasAndWhatWasSharedStays) {
  for (std::uint64_t seed = 0; seed < test_rounds(300); ++seed) {
    Random random(seed);
    Pair pair;
    std::deque<Held> held;
    for (int i = 0; i < 400; ++i) {
      pair.change(random);
      if (random.below(4) == 0) held.push_back(share(pair, random));
      if (random.below(4) == 0) held.push_back(Held(held.empty() ? Held() : held.back()));
      if (random.below(3) == 0 && !held.empty()) held.pop_front();
      ASSERT_EQ(of(pair.table), pair.plain) << seed;
      for (const Held& one : held) ASSERT_EQ(of(one.shared), one.expected) << seed;
    }
  }
}

TEST(SlotTable, SharesWithoutACopy) {
  SlotTable table;
  table.reserve(4);
  for (const std::uint32_t slot : {7u, 3u, 9u}) table.push_back(SlotId(slot));
  const SharedSlots first = table.share(2);
  table.push_back(SlotId(4));
  table.set(2, SlotId(8));
  table.set(1, SlotId(3));  // as it is
  const SharedSlots second = table.share(4);
  EXPECT_EQ(first.begin(), second.begin()) << "nobody reads what has changed";
  table.set(0, SlotId(5));
  const SharedSlots third = table.share(4);
  EXPECT_NE(third.begin(), second.begin());
  EXPECT_EQ(of(first), (Slots{SlotId(7), SlotId(3)}));
  EXPECT_EQ(of(second), (Slots{SlotId(7), SlotId(3), SlotId(8), SlotId(4)}));
  EXPECT_EQ(of(third), (Slots{SlotId(5), SlotId(3), SlotId(8), SlotId(4)}));
}

// What goes from the core's thread to that of a pass.
class Inbox {
 public:
  void put(Held held) {
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(held));
    added_.notify_one();
  }
  Held take() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !held_.empty(); });
    Held held = std::move(held_.front());
    held_.pop_front();
    return held;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Held> held_;
};

TEST(SlotTable, GrowsAndChangesWhileOtherThreadsRead) {
  constexpr std::size_t kThreads = 2;
  const std::uint64_t rounds = test_rounds(20'000);
  std::vector<Inbox> inboxes(kThreads);
  std::vector<std::size_t> wrong(kThreads);
  std::vector<std::thread> readers;
  for (std::size_t reader = 0; reader < kThreads; ++reader) {
    readers.emplace_back([&, reader] {
      std::deque<Held> kept;  // as passes in flight keep them
      for (std::uint64_t i = 0; i < rounds; ++i) {
        kept.push_back(inboxes[reader].take());
        for (const Held& one : kept) wrong[reader] += of(one.shared) == one.expected ? 0 : 1;
        if (kept.size() > 3) kept.pop_front();
      }
    });
  }
  Random random(1);
  Pair pair;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    pair.change(random);
    const Held held = share(pair, random);
    for (Inbox& inbox : inboxes) inbox.put(held);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, std::vector<std::size_t>(kThreads));
}

}  // namespace
}  // namespace loci
