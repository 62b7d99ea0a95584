// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/inbox.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace loci {
namespace {

std::uint64_t number_of(const InboxItem& item) { return std::get<Cancel>(item).request.value; }

TEST(Inbox, GivesPortionsInOrder) {
  Inbox inbox;
  constexpr std::uint64_t kItems = 3 * Inbox::kTakenAtOnce + 1;
  for (std::uint64_t i = 0; i < kItems; ++i) inbox.post(Cancel{RequestId(i)});
  std::uint64_t next = 0;
  std::vector<std::size_t> portions;
  while (!inbox.empty()) {
    std::vector<InboxItem> items;
    ASSERT_TRUE(inbox.take(items, kNever));
    portions.push_back(items.size());
    for (const InboxItem& item : items) EXPECT_EQ(number_of(item), next++);
  }
  EXPECT_EQ(next, kItems);
  EXPECT_EQ(portions, (std::vector<std::size_t>{64, 64, 64, 1}));
}

TEST(Inbox, NothingIsTakenWhereNothingCame) {
  Inbox inbox;
  std::vector<InboxItem> items;
  EXPECT_TRUE(inbox.take(items, 0));
  EXPECT_TRUE(items.empty());
  inbox.note_step();
  EXPECT_TRUE(inbox.take(items, kNever)) << "another thread has stepped the core";
  EXPECT_TRUE(items.empty());
  inbox.stop();
  EXPECT_FALSE(inbox.take(items, kNever));
}

// The next batch is posted when the one before it was taken, which may be behind other items.
TEST(Inbox, TheDisksEntriesComeABatchAtATime) {
  Inbox inbox;
  for (std::uint64_t i = 0; i < Inbox::kTakenAtOnce; ++i) inbox.post(Cancel{RequestId(i)});
  Recovered found;
  found.entries.resize(150);
  found.last = true;
  std::thread disk([&] { inbox.post_recovered(std::move(found)); });
  std::vector<std::size_t> batches;
  for (bool last = false; !last;) {
    std::vector<InboxItem> items;
    ASSERT_TRUE(inbox.take(items, kNever));
    std::size_t in_portion = 0;
    for (const InboxItem& item : items) {
      const auto* recovered = std::get_if<Recovered>(&item);
      if (recovered == nullptr) continue;
      ++in_portion;
      batches.push_back(recovered->entries.size());
      last = recovered->last;
    }
    EXPECT_LE(in_portion, 1u);
  }
  disk.join();
  EXPECT_EQ(batches, (std::vector<std::size_t>{64, 64, 22}));
}

}  // namespace
}  // namespace loci
