// SPDX-License-Identifier: Apache-2.0
// How far away state is (distances.h), with the core around it: in which order waiting requests start.
#include "loci/engine/core/distances.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

// Half of the layers see 64 tokens. The device has room for all that the others computed, and for few
// windows.
CoreConfig with_few_windows(std::uint32_t window_blocks) {
  CoreConfig config = tier_config(64, 0, 0);
  config.groups.push_back(config.groups.front());
  config.groups.back().window = 64;
  config.groups.back().block_count = window_blocks;
  config.admission = "fpf";
  config.max_running = 1;
  return config;
}

// Requests 51 and 52 wait, in this order; the order in which they start.
std::vector<std::uint64_t> starts(TierDriver& d, const Tokens& first, const Tokens& second) {
  d.arrive(50, run_of(90'000, 10), 8);
  d.arrive(51, first);
  d.arrive(52, second);
  const std::size_t before = d.starts.size();
  d.finish();
  std::vector<std::uint64_t> order;
  for (std::size_t i = before; i < d.starts.size(); ++i) order.push_back(d.starts[i].request.value);
  return order;
}

// The first one parts from a longer conversation whose state the device has, but for the windows there: so
// all of it would be computed. The second one goes on behind a third of its prompt.
TEST(Distances, WhatNobodyCanGoOnFromIsNowhere) {
  for (const std::uint32_t window_blocks : {12u, 60u}) {
    TierDriver d(with_few_windows(window_blocks));
    d.run(1, run_of(0, 512));
    for (std::uint32_t i = 0; i < 2; ++i) d.run(10 + i, run_of(20'000 + 1000 * i, 64));
    d.run(2, run_of(5000, 128));
    const bool gone = window_blocks == 12;
    const std::vector<std::uint64_t> order =
        starts(d, run_of(0, 256) + run_of(70'000, 44), run_of(5000, 384));
    EXPECT_EQ(order, gone ? (std::vector<std::uint64_t>{52, 51}) : (std::vector<std::uint64_t>{51, 52}));
    const ContextSources& one = gone ? d.starts.back().sources : d.starts[d.starts.size() - 2].sources;
    EXPECT_EQ(one.device, gone ? 0u : 256u);
  }
}

}  // namespace
}  // namespace loci
