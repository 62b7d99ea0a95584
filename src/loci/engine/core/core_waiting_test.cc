// SPDX-License-Identifier: Apache-2.0
// The small owners of who waits, who runs and until when.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "loci/engine/core/batch.h"
#include "loci/engine/core/before_queue.h"
#include "loci/engine/core/deadlines.h"
#include "loci/engine/core/room.h"

namespace loci {
namespace {

CoreRequest request_of(std::uint64_t id, const TenantId& tenant, Nanos deadline = kNever) {
  return CoreRequest{{.id = RequestId(id), .arrival = id, .tenant = tenant, .deadline = deadline}};
}

TEST(BeforeQueue, LetsGoWhoWaitedLongEnoughInTheirOrder) {
  BeforeQueue waiting(/*queued_max=*/5);
  CoreRequest a = request_of(1, "a"), b = request_of(2, "b");
  EXPECT_EQ(waiting.next(), kNever);
  waiting.enter(a, BeforeQueue::For::kAnswer, 30);
  EXPECT_FALSE(waiting.full());
  waiting.enter(b, BeforeQueue::For::kBeginning, 20);
  EXPECT_TRUE(waiting.full()) << "half of the places";
  EXPECT_EQ(waiting.waiting("a"), 1u);
  EXPECT_EQ(waiting.waiting("c"), 0u);
  EXPECT_EQ(waiting.next(), 20);
  EXPECT_TRUE(waiting.take_late(19).empty());
  EXPECT_TRUE(b.before_queue->for_beginning);
  waiting.check_invariants();
  EXPECT_EQ(waiting.take_late(25), std::vector<CoreRequest*>{&b});
  EXPECT_FALSE(b.before_queue->until.has_value() || b.before_queue->for_beginning);
  EXPECT_TRUE(b.waits()) << "it may enter the queue";
  EXPECT_FALSE(a.waits());
  EXPECT_EQ(waiting.next(), 30);
  waiting.enter(b, BeforeQueue::For::kAnswer, 20);
  EXPECT_EQ(waiting.take_late(30), (std::vector<CoreRequest*>{&b, &a}));
  EXPECT_TRUE(waiting.empty());
  waiting.check_invariants();
}

TEST(BeforeQueue, LetsGoWhoseBeginningHasCome) {
  BeforeQueue waiting(8);
  CoreRequest a = request_of(1, "a"), b = request_of(2, "a"), c = request_of(3, "a");
  waiting.enter(a, BeforeQueue::For::kBeginning, 10);
  waiting.enter(b, BeforeQueue::For::kAnswer, 10);
  waiting.enter(c, BeforeQueue::For::kBeginning, 10);
  const auto but_a = [&](const CoreRequest& one) { return one.id != a.id; };
  EXPECT_EQ(waiting.take_begun(but_a), std::vector<CoreRequest*>{&c}) << "b waits for the store's answer";
  EXPECT_EQ(waiting.size(), 2u);
  EXPECT_TRUE(c.waits());
}

TEST(Deadlines, AreDueInTheirOrderAndWithTheDrain) {
  Deadlines deadlines;
  const CoreRequest a = request_of(1, "a", 30), b = request_of(2, "a"), c = request_of(3, "a", 20);
  for (const CoreRequest* one : {&a, &b, &c}) deadlines.add(*one);
  EXPECT_EQ(deadlines.next(0, true), 20);
  EXPECT_EQ(deadlines.due(19), std::nullopt);
  EXPECT_EQ(deadlines.due(25), c.id);
  deadlines.drop(c);
  deadlines.drop(b);
  EXPECT_EQ(deadlines.due(25), std::nullopt);
  EXPECT_FALSE(deadlines.drains());
  deadlines.drain(28);
  deadlines.drain(29);
  EXPECT_TRUE(deadlines.drains());
  EXPECT_EQ(deadlines.next(25, true), 28) << "the earliest drain counts";
  EXPECT_EQ(deadlines.next(25, false), 30) << "nobody waits for the drain";
  EXPECT_FALSE(deadlines.drain_is_over(27));
  EXPECT_TRUE(deadlines.drain_is_over(28));
  EXPECT_EQ(deadlines.next(28, true), 30);
}

TEST(Batch, IsInOrderOfArrivalWhoeverComesBack) {
  Batch batch(3);
  CoreRequest a = request_of(1, "a"), b = request_of(2, "a"), c = request_of(3, "a");
  batch.enter(b);
  batch.enter(c);
  batch.enter(a);
  EXPECT_TRUE(batch.full());
  EXPECT_EQ(std::vector(batch.begin(), batch.end()), (std::vector<CoreRequest*>{&a, &b, &c}));
  batch.check_invariants();
  batch.leave(b);
  EXPECT_EQ(std::vector(batch.begin(), batch.end()), (std::vector<CoreRequest*>{&a, &c}));
  EXPECT_FALSE(batch.any(RequestPhase::kDecode));
  c.phase.become(RequestPhase::kPrompt);
  c.phase.become(RequestPhase::kDecode);
  EXPECT_TRUE(batch.any(RequestPhase::kDecode));
}

TEST(Room, UnblocksOnceItHasChanged) {
  Room room;
  const std::uint64_t before = room.changes();
  EXPECT_NE(before, 0u);
  room.block(RequestId(4));
  EXPECT_TRUE(room.is_blocked(RequestId(4)));
  EXPECT_FALSE(room.is_blocked(RequestId(5)));
  room.changed();
  EXPECT_FALSE(room.is_blocked(RequestId(4)));
  EXPECT_NE(room.changes(), before);
}

TEST(Room, KnowsThatWhoIsBlockedWaits) {
  Room room;
  const auto only_four = [](RequestId id) { return id == RequestId(4); };
  room.check_invariants(only_four, 0);
  EXPECT_DEATH(room.check_invariants(only_four, room.changes() + 1), "invariant 10");
  room.block(RequestId(4));
  room.check_invariants(only_four, room.changes());
  room.block(RequestId(5));
  EXPECT_DEATH(room.check_invariants(only_four, 0), "invariant 7");
  room.changed();
  room.check_invariants(only_four, 0);
}

}  // namespace
}  // namespace loci
