// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/turn_claims.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/naive_store_testing.h"

namespace loci {
namespace {

using Claims = std::vector<std::int64_t>;

// Its claims can't be released, and it keeps which ones were renewed last.
class FailingStore final : public NaiveStore {
 public:
  Status release_turn(std::string_view, std::string_view, std::int64_t) override {
    ++releases;
    return {StatusCode::kUnavailable, "the database is away"};
  }
  Status renew_claims(const Claims& held) override {
    const std::lock_guard lock(mutex_);
    renewed_ = held;
    std::sort(renewed_.begin(), renewed_.end());
    return {};
  }
  bool renews(const Claims& claims) {
    return eventually([&] {
      const std::lock_guard lock(mutex_);
      return renewed_ == claims;
    });
  }

  std::atomic<int> releases = 0;

 private:
  std::mutex mutex_;
  Claims renewed_ = {-1};
};

TEST(TurnClaims, OnlyTurnsThatAreBeingMadeAreRenewed) {
  FailingStore store;
  WorkerPool pool(1);
  const auto log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  const auto claims = std::make_shared<TurnClaims>(pool, store, log);
  claims->start(kNanosPerMilli);
  EXPECT_TRUE(store.renews({}));
  {
    HeldTurn first(ConversationLock(), claims, "ann", "c", 7);
    EXPECT_TRUE(store.renews({7}));
    HeldTurn second(ConversationLock(), claims, "ann", "d", 8);
    EXPECT_TRUE(store.renews({7, 8}));
    const HeldTurn moved = std::move(second);
    first = HeldTurn();
    EXPECT_TRUE(store.renews({8}));
    EXPECT_EQ(moved.claim(), 8);
  }
  // Whether the store could release them or not.
  EXPECT_TRUE(store.renews({}));
  EXPECT_TRUE(eventually([&] { return store.releases >= 2; }));
  EXPECT_EQ(store.releases, 2);
  claims->stop();
}

}  // namespace
}  // namespace loci
