// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/lookahead.h"

#include <gtest/gtest.h>

#include <limits>

namespace loci {
namespace {

constexpr std::uint64_t kGb = 1'000'000'000;

// Figure 9: host memory has two free places for the state of a job, and places for six in all with the disk.
TEST(Lookahead, WindowsAreThoseOfFigureNine) {
  const std::uint64_t job = 5 * kGb;
  EXPECT_EQ(prefetch_window(2 * job, job), 2u);
  EXPECT_EQ(eviction_window(2 * job, 4 * job, job), 6u);
  EXPECT_EQ(prefetch_window(2 * job - 1, job), 1u) << "half a session is of no use";
  EXPECT_EQ(prefetch_window(job - 1, job), 0u);
  EXPECT_EQ(prefetch_window(job, 0), 0u) << "nothing is known of sessions yet";
}

// §4.3.3 and §2.4: 2K tokens of LLaMA-65B are 5 GB; 128 GB of memory and 10 TB of disk.
TEST(Lookahead, WindowsOfThePapersMachine) {
  EXPECT_EQ(prefetch_window(128 * kGb, 5 * kGb), 25u);
  EXPECT_EQ(eviction_window(128 * kGb, 10'000 * kGb, 5 * kGb), 2025u);
}

// §2.4: 5 GB come in 192 ms, and 2K tokens are computed in 360 ms.
TEST(Lookahead, TheReadBufferIsWhatComputingDoesNotHide) {
  const Nanos load = 192 * kNanosPerMilli, token = 360 * kNanosPerMilli / 2048;
  EXPECT_EQ(read_buffer(5 * kGb, load, 2048 * token), 0u);
  EXPECT_EQ(read_buffer(5 * kGb, load, load), 0u);
  // 26 GB/s for the 174 ms that 100 new tokens leave.
  EXPECT_NEAR(static_cast<double>(read_buffer(5 * kGb, load, 100 * token)), 4.54e9, 0.01e9);
  EXPECT_EQ(read_buffer(5 * kGb, load, 0), 5 * kGb) << "nothing to hide it behind";
  EXPECT_EQ(read_buffer(5 * kGb, load, -7), 5 * kGb);
  EXPECT_EQ(read_buffer(10, 3, 1), 7u) << "rounded up";
  EXPECT_EQ(read_buffer(10, 0, 0), 0u);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(read_buffer(most, std::numeric_limits<Nanos>::max(), 0), most);
}

TEST(Lookahead, StateExpiresAfterItsTtl) {
  EXPECT_FALSE(expired(10, 15, 5));
  EXPECT_TRUE(expired(10, 16, 5));
  EXPECT_FALSE(expired(10, 10, 0));
  EXPECT_TRUE(expired(10, 11, -3));
  EXPECT_FALSE(expired(10, kNever, kNever));
  EXPECT_EQ(expires_at(10, kNever), kNever);
  EXPECT_EQ(expires_at(10, 5), 15);
}

TEST(Lookahead, NothingOverflows) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(prefetch_window(most, 1), UINT32_MAX);
  EXPECT_EQ(eviction_window(most, most, 1), UINT32_MAX);
}

}  // namespace
}  // namespace loci
