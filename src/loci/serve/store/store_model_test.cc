// SPDX-License-Identifier: Apache-2.0
// Random operations on a real store and on the naive one: both must say the same, always.
#include <gtest/gtest.h>

#include "loci/serve/store/naive_store_testing.h"
#include "loci/serve/store/random_walk_testing.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

class StoreModel : public testing::TestWithParam<StoreKind> {};

TEST_P(StoreModel, SaysWhatTheNaiveStoreSays) {
  const bool local = GetParam() == StoreKind::kSqliteInMemory;
  for (std::uint64_t seed = 0; seed < (local ? 40u : 3u); ++seed) {
    const auto place = make_store_place(GetParam());
    if (place == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    StoreWalk walk(local ? WalkKind::kAll : WalkKind::kWithoutInterruption, seed);
    NaiveStore naive;
    StoreOptions options;
    options.now_seconds = [&walk] { return walk.now(); };
    std::unique_ptr<ConversationStore> store;
    for (int i = 0; i < 400; ++i) {
      // What was there before is there after a restart.
      if (i % 100 == 0) {
        store.reset();
        auto opened = place->open(options);
        ASSERT_TRUE(opened.ok()) << opened.status().to_string();
        store = std::move(opened).value();
      }
      const StoreOperation operation = walk.next();
      naive.now = walk.now();
      ASSERT_EQ(operation.run(*store), operation.run(naive))
          << "seed " << seed << ", step " << i << ": " << operation.name;
    }
    EXPECT_EQ(dump_store(*store), dump_store(naive)) << "seed " << seed;
    // When all is gone, nothing is left behind that takes space.
    ASSERT_TRUE(store->expire(1 << 30, {.age_seconds_max = 1, .bytes_max = {}}).ok());
    EXPECT_EQ(store->size_bytes().value(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreModel, testing::Values(StoreKind::kSqliteInMemory, StoreKind::kPostgres),
                         [](const auto& kind) { return testing::PrintToString(kind.param); });

}  // namespace
}  // namespace loci
