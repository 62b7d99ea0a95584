// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace loci {
namespace {

using Numbers = std::vector<std::uint32_t>;

std::vector<PeerAddress> addresses(std::uint16_t count) {
  std::vector<PeerAddress> all;
  for (std::uint16_t i = 1; i <= count; ++i)
    all.push_back({.id = "member " + std::to_string(i), .host = "127.0.0.1", .port = i});
  return all;
}

Numbers numbers(const std::vector<std::shared_ptr<Peer>>& peers) {
  Numbers all;
  for (const std::shared_ptr<Peer>& peer : peers) all.push_back(peer->number);
  return all;
}

TEST(PeerTableTest, WhoStaysKeepsItsNumberAndItsHealth) {
  PeerTable table;
  EXPECT_EQ(numbers(table.set(addresses(3)).added), (Numbers{1, 2, 3}));
  table.find(2)->found_at = 7;
  std::vector<PeerAddress> fewer = addresses(3);
  fewer.erase(fewer.begin());
  const PeerTable::Change change = table.set(fewer);
  EXPECT_TRUE(change.added.empty());
  EXPECT_EQ(change.removed, Numbers{1});
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_EQ(table.find(2)->found_at, 7);
}

TEST(PeerTableTest, WhoComesBackIsAnother) {
  PeerTable table;
  table.set(addresses(1));
  table.set({});
  EXPECT_EQ(numbers(table.set(addresses(1)).added), Numbers{2});
  // So is one at another address.
  std::vector<PeerAddress> moved = addresses(1);
  moved[0].port = 99;
  const PeerTable::Change change = table.set(moved);
  EXPECT_EQ(numbers(change.added), Numbers{3});
  EXPECT_EQ(change.removed, Numbers{2});
}

TEST(PeerTableTest, AMemberThatIsListedTwiceIsOnePeer) {
  PeerTable table;
  std::vector<PeerAddress> twice = addresses(1);
  twice.push_back(twice.front());
  for (int i = 0; i < 2; ++i) {
    table.set(twice);
    EXPECT_EQ(table.size(), 1u);
  }
}

TEST(PeerTableTest, WhoFailsOrHasTooMuchToAnswerIsNotAsked) {
  PeerTable table;
  table.set(addresses(4));
  for (std::uint32_t i = 0; i < PeerHealth::kFailuresMax; ++i) {
    table.find(1)->asks.fail(0);
    table.find(2)->reads.fail(0);
  }
  table.find(3)->questions = PeerTable::kQuestionsMax;
  EXPECT_EQ(numbers(table.choose(8, 0)), Numbers{4});
  EXPECT_EQ(table.up(0), 2u);
  EXPECT_EQ(table.up(PeerHealth::kPauseMin), 4u) << "after a while it is tried again";
}

// The header's example.
TEST(PeerTableTest, MostOfThoseWhoAreAskedHadSomethingLatelyTheRestTakesTurns) {
  PeerTable table;
  table.set(addresses(6));
  table.find(1)->found_at = table.find(2)->found_at = 5;
  for (std::uint32_t i = 0; i < PeerHealth::kFailuresMax; ++i) table.find(5)->asks.fail(0);
  EXPECT_EQ(numbers(table.choose(4, 0)), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(numbers(table.choose(4, 0)), (Numbers{1, 2, 3, 6}));
  EXPECT_EQ(numbers(table.choose(4, 0)), (Numbers{1, 2, 3, 4}));
  // Who had something last is the first.
  table.find(6)->found_at = 9;
  EXPECT_EQ(numbers(table.choose(4, 0)).front(), 6u);
  // So has one that is noted to have computed something.
  table.note_found(addresses(6)[3], 10);
  EXPECT_EQ(numbers(table.choose(4, 0)).front(), 4u);
}

}  // namespace
}  // namespace loci
