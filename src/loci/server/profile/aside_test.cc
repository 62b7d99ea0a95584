// SPDX-License-Identifier: Apache-2.0
#include "loci/server/profile/aside.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "loci/base/thread_limit_testing.h"

namespace loci {
namespace {

TEST(Aside, WithoutAThreadItsAnswerSaysSo) {
  const auto calls = std::make_shared<int>(0);
  const auto call = [calls]() -> Result<int> { return ++*calls; };
  std::optional<Aside<Result<int>>> aside;
  {
    const ThreadLimit limit(0);
    aside.emplace(call, 3600 * kNanosPerSecond);
  }
  EXPECT_TRUE(aside->wait([] { return true; }));
  const std::optional<Result<int>> refused = aside->take();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status().code(), StatusCode::kResourceExhausted) << refused->status().message();
  EXPECT_EQ(*calls, 0);
  aside.emplace(call, 3600 * kNanosPerSecond);
  EXPECT_TRUE(aside->wait([] { return false; }));
  EXPECT_EQ(aside->take()->value(), 1);
}

}  // namespace
}  // namespace loci
