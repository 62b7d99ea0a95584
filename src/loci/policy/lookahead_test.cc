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

// §4.3.3 and §2.3: 2K tokens of LLaMA-65B are 5 GB; 128 GB of memory and 10 TB of disk.
TEST(Lookahead, WindowsOfThePapersMachine) {
  EXPECT_EQ(prefetch_window(128 * kGb, 5 * kGb), 25u);
  EXPECT_EQ(eviction_window(128 * kGb, 10'000 * kGb, 5 * kGb), 2025u);
}

// Figure 19 (LLaMA-13B, 40 layers, a history of 1K and 100 new tokens): hiding the load wholly cuts the time
// by 61 %, so of 100 units of time loading takes 61 and computing 39. The paper finds 15 layers' buffer
// enough and 10 too few.
TEST(Lookahead, TheReadBufferIsThatOfFigureNineteen) {
  const std::uint64_t layer_bytes = 20'971'520;  // 1,024 tokens * 2 * 5,120 * 2 bytes
  const std::uint64_t history_bytes = 40 * layer_bytes;
  ReadAhead ahead;
  ahead.history_tokens = 1024;
  ahead.load_token = 61'000;
  ahead.bytes_per_second = history_bytes * kNanosPerSecond / (1024 * 61'000);
  ahead.new_tokens = 100;
  ahead.compute_token = 39'000 * 1024 / 100;
  const std::uint64_t bytes = read_buffer_bytes(ahead);
  EXPECT_GT(bytes, 10 * layer_bytes);
  EXPECT_EQ((bytes + layer_bytes - 1) / layer_bytes, 15u);
  EXPECT_EQ(read_buffer_time(ahead), 61'000 * 1024 - 39'000 * 1024 / 100 * 100);
}

// §2.3: computing 2K tokens of LLaMA-65B takes 360 ms, loading them 192 ms.
TEST(Lookahead, NoBufferWhereComputingHidesTheLoad) {
  ReadAhead ahead{.bytes_per_second = 26 * kGb,
                  .load_token = 93'750,
                  .history_tokens = 2048,
                  .compute_token = 175'781,
                  .new_tokens = 2048};
  EXPECT_EQ(read_buffer_bytes(ahead), 0u);
  ahead.new_tokens = 0;  // all of it must be there before
  EXPECT_EQ(read_buffer_time(ahead), 192'000'000);
  EXPECT_EQ(read_buffer_bytes(ahead), 26 * kGb * 192 / 1000);
}

// §4.3.5: a TTL of an hour at one session a second, LLaMA-13B with 2K tokens of 0.78 MB.
TEST(Lookahead, CapacityOfATtl) {
  EXPECT_EQ(capacity_for_ttl(3600, 2048 * std::uint64_t{819'200}), std::uint64_t{6'039'797'760'000});
  EXPECT_EQ(capacity_for_ttl(0, 5), 0u);
}

TEST(Lookahead, StateExpiresAfterItsTtl) {
  EXPECT_FALSE(expired(10, 15, 5));
  EXPECT_TRUE(expired(10, 16, 5));
  EXPECT_FALSE(expired(10, 10, 0));
  EXPECT_TRUE(expired(10, 11, -3));
  const Nanos never = std::numeric_limits<Nanos>::max();
  EXPECT_FALSE(expired(10, never, never));
  EXPECT_EQ(expires_at(10, never), never);
  EXPECT_EQ(expires_at(10, 5), 15);
}

TEST(Lookahead, NothingOverflows) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(prefetch_window(most, 1), UINT32_MAX);
  EXPECT_EQ(eviction_window(most, most, 1), UINT32_MAX);
  EXPECT_EQ(capacity_for_ttl(most, most), most);
  const ReadAhead ahead{.bytes_per_second = most,
                        .load_token = std::numeric_limits<Nanos>::max(),
                        .history_tokens = UINT32_MAX};
  EXPECT_EQ(read_buffer_bytes(ahead), most);
  EXPECT_EQ(read_buffer_time(ahead), std::numeric_limits<Nanos>::max());
}

}  // namespace
}  // namespace loci
