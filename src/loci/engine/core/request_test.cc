// SPDX-License-Identifier: Apache-2.0
// Who may change a request. Most of this file is tested by compiling it.
#include "loci/engine/core/request.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace loci {

// An owner of the test's own.
class Teller {
 public:
  static void set(OwnedBy<Teller, RequestQuestion>& part) { part.change().answered = true; }
};

namespace {

template <class Part>
concept ChangedByAll = requires(Part& part) { part.change(); };
template <class Part>
concept WrittenByAll = requires(Part& part) { part->in_flight = 1u; };

static_assert(!ChangedByAll<OwnedBy<Teller, RequestQuestion>>);
static_assert(!ChangedByAll<decltype(CoreRequest::windows)> && !ChangedByAll<decltype(CoreRequest::passes)>);
static_assert(!WrittenByAll<decltype(CoreRequest::passes)>);
static_assert(std::is_const_v<decltype(CoreRequest::deadline)> && std::is_const_v<decltype(CoreRequest::id)>);
static_assert(!std::is_move_assignable_v<RequestFacts>);

TEST(OwnedBy, ShowsAllWhatItsOwnerChanges) {
  OwnedBy<Teller, RequestQuestion> part;
  EXPECT_FALSE(part->answered);
  Teller::set(part);
  EXPECT_TRUE(part->answered);
  EXPECT_TRUE((*part).asked.empty());
}

TEST(CoreRequest, WaitsUntilItRunsRestsOrIsBeforeTheQueue) {
  CoreRequest request{{.id = RequestId(1), .prompt_tokens = 2}};
  request.tokens = {TokenId(1), TokenId(2), TokenId(3)};
  EXPECT_EQ(request.new_tokens(), 1u);
  EXPECT_TRUE(request.waits());
  EXPECT_FALSE(request.was_admitted());
  request.paused = true;
  EXPECT_FALSE(request.waits());
  EXPECT_TRUE(request.gives_way());
  request.paused = false;
  request.phase.become(RequestPhase::kPrompt);
  EXPECT_TRUE(request.runs() && request.was_admitted());
  EXPECT_FALSE(request.waits());
  request.phase.become(RequestPhase::kSuspended);
  EXPECT_TRUE(request.waits());
}

}  // namespace
}  // namespace loci
