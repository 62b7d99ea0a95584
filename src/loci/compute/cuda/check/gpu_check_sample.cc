// SPDX-License-Identifier: Apache-2.0
// Tests that end in every possible way; gpu_check_test.cc runs gpu-check's main() on them. No GPU is touched.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace {

TEST(Good, Passes) {}
TEST(Good, PassesToo) {}
TEST(Bad, Passes) {}
TEST(Bad, Fails) { EXPECT_EQ(1, 2); }
TEST(Skipping, Skips) { GTEST_SKIP() << "for a reason"; }
TEST(Crashing, Passes) {}
TEST(Crashing, Crashes) { std::abort(); }
TEST(Crashing, IsNeverReached) {}
TEST(Hanging, Hangs) { sleep(1000); }
class Parameters : public testing::TestWithParam<int> {};
TEST_P(Parameters, AreSmall) { EXPECT_LT(GetParam(), 3); }
INSTANTIATE_TEST_SUITE_P(Some, Parameters, testing::Values(1, 2, 3));

}  // namespace
