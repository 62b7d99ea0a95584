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

// The next batch is posted when an earlier one was taken, which may be behind other items.
TEST(Inbox, TheDisksEntriesComeAFewBatchesAtATime) {
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
    EXPECT_LE(in_portion, 8u);
  }
  disk.join();
  std::vector<std::size_t> expected(18, 8);
  expected.push_back(6);
  EXPECT_EQ(batches, expected);
}

TEST(Inbox, EndsOfMovesComeAFewAtATime) {
  Inbox inbox;
  MovesEnded ended;
  for (std::uint64_t i = 0; i < 40; ++i) ended.moves.push_back({.move = OperationId(i)});
  inbox.post_ended(std::move(ended));
  std::vector<InboxItem> items;
  ASSERT_TRUE(inbox.take(items, kNever));
  ASSERT_EQ(items.size(), 3u);
  std::uint64_t next = 0;
  for (const InboxItem& item : items)
    for (const MoveOutcome& one : std::get<MovesEnded>(item).moves) EXPECT_EQ(one.move.value, next++);
  EXPECT_EQ(next, 40u);
}

}  // namespace
}  // namespace loci
