// SPDX-License-Identifier: Apache-2.0
// How much a heavy client delays the others, with the production core in virtual time (client_load.h).
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "loci/base/rounds_testing.h"
#include "loci/sim/client_load.h"

namespace loci {
namespace {

// The bound that docs/tenants.md states: a heavy client adds at most so many full passes to the p90 of the
// others' time to the first token.
constexpr Nanos kPassesAdded = 3;

double millis(Nanos time) { return time == kNever ? -1 : static_cast<double>(time) / 1e6; }

void expect_bound(const std::vector<LoadRequest>& alone, std::uint32_t times) {
  const std::vector<LoadRequest> together = with_heavy_client(alone, times);
  ClientLoadOptions fair = default_load_options();
  ClientLoadOptions fcfs = fair;
  fcfs.one_tenant = true;
  const Nanos before = percentile_of_others(alone, run_load(alone, fair), 90);
  const LoadReport report = run_load(together, fair);
  const Nanos after = percentile_of_others(together, report, 90);
  const Nanos with_fcfs = percentile_of_others(together, run_load(together, fcfs), 90);
  std::printf(
      "others' p90 time to the first token: %.0f ms alone, %.0f ms beside the heavy client (%.0f ms first "
      "come, first served; -1: refused); a full pass %.0f ms\n",
      millis(before), millis(after), millis(with_fcfs), millis(fair.longest_pass()));
  ASSERT_NE(before, kNever);
  EXPECT_LE(after, before + kPassesAdded * fair.longest_pass());
  // The bound means something: without fairness it is broken.
  EXPECT_GT(with_fcfs, before + kPassesAdded * fair.longest_pass());
  // Nobody else is refused for the heavy client's sake.
  for (std::size_t i = 0; i < together.size(); ++i) {
    const bool refused = report.first_token[i] == kNever;
    EXPECT_FALSE(refused && together[i].client != kHeavyClient) << "request " << i;
  }
}

TEST(Fairness, AHeavyClientBarelyMovesTheOthers) {
  for (std::uint64_t seed = 1; seed <= test_rounds(2); ++seed) expect_bound(drawn_clients(seed), 10);
}

TEST(Fairness, AHeavyClientBarelyMovesTheOthersOfTheArena) {
  const auto requests = arena_clients();
  if (!requests) GTEST_SKIP() << "the arena's trace is not at $LOCI_SHARED_DATA";
  std::set<std::uint32_t> clients;
  for (const LoadRequest& request : *requests) clients.insert(request.client);
  ASSERT_GE(clients.size(), 20u);
  expect_bound(*requests, 10);
}

// Memory for a few sequences at a time: they give way by the blocks that they hold.
TEST(Fairness, HoldsWhereMemoryIsShort) {
  const std::vector<LoadRequest> alone = drawn_clients(4);
  const std::vector<LoadRequest> together = with_heavy_client(alone, 10);
  ClientLoadOptions fair = default_load_options();
  fair.core.groups = {{.window = 0, .block_count = 500}};
  ClientLoadOptions fcfs = fair;
  fcfs.one_tenant = true;
  const Nanos before = percentile_of_others(alone, run_load(alone, fair), 90);
  const Nanos after = percentile_of_others(together, run_load(together, fair), 90);
  const Nanos with_fcfs = percentile_of_others(together, run_load(together, fcfs), 90);
  std::printf(
      "with memory for 16,000 tokens: %.0f ms alone, %.0f ms beside the heavy client (%.0f ms first come, "
      "first served)\n",
      millis(before), millis(after), millis(with_fcfs));
  EXPECT_LE(after, before + 5 * fair.longest_pass());
  EXPECT_GT(with_fcfs, before + 20 * fair.longest_pass());
}

// Long prompts of one do not keep another's out of a pass.
TEST(Fairness, AShortPromptPassesLongOnes) {
  std::vector<LoadRequest> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back({.at = 0, .client = kHeavyClient, .prompt_tokens = 4000, .output_tokens = 10});
  for (int i = 1; i <= 50; ++i) {
    requests.push_back(
        {.at = i * 300 * kNanosPerMilli, .client = 1, .prompt_tokens = 100, .output_tokens = 1});
  }
  const ClientLoadOptions options = default_load_options();
  const LoadReport report = run_load(requests, options);
  // The rest of the pass in flight, and one pass of its own.
  EXPECT_LE(percentile_of_others(requests, report, 100), 2 * options.longest_pass());
}

}  // namespace
}  // namespace loci
