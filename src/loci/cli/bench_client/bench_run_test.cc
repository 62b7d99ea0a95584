// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_run.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "loci/serve/http/hanging_resolver_testing.h"

namespace loci {
namespace {

TEST(BenchRun, AnInterruptWaitsForNoResolver) {
  BenchOptions options{.urls = {"http://" + std::string(kHangingName)}};
  const SystemClock clock;
  resolver_may_go_on = false;
  resolver_raises = SIGINT;
  const Status status = run_bench(options, {}, clock, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  EXPECT_FALSE(resolver_may_go_on) << "it waited for the resolver";
  resolver_may_go_on = true;
}

}  // namespace
}  // namespace loci
