// SPDX-License-Identifier: Apache-2.0
// A run of `loci bench`: it holds the conversations of a workload with one server, or with two in turns.
//
// With two servers, a round of as many turns as `concurrency` allows goes to one server; when all have ended,
// the same turns go to the other. Which server is first alternates. So only one is loaded at a time, a
// disturbance of the machine that lasts longer than a round meets both, and each request to one server has
// its pair at the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/cli/bench_client/bench_server.h"
#include "loci/cli/bench_client/dialogue.h"
#include "loci/cli/bench_client/turn_schedule.h"

namespace loci {

struct BenchOptions {
  std::vector<std::string> urls;  // one, or two to be compared; no rate or thinking then
  RequestOptions request;
  ScheduleOptions schedule;
  std::uint32_t warm_ups = 1;  // requests before those that count, one after another
  Nanos patience = 0;          // for a server that loads
};

// What one server did.
struct ServerRun {
  std::string url;
  std::string model;
  std::vector<TurnRecord> turns;  // in the order in which they ended
  Nanos busy = 0;  // while this server had requests under way: throughput is counted over this time
  std::vector<Nanos> rounds;  // where two are compared
  std::uint32_t skipped = 0;  // turns behind one that failed
};

struct BenchResult {
  std::vector<ServerRun> servers;
  bool interrupted = false;  // by SIGINT: what had ended until then
};

// For one line on a terminal.
struct BenchProgress {
  std::uint64_t ended = 0;
  std::uint64_t failed = 0;
  std::uint64_t in_all = 0;
  std::uint32_t in_flight = 0;
  std::uint64_t output_tokens = 0;
  Nanos elapsed = 0;
};
using ProgressListener = std::function<void(const BenchProgress&)>;

// Blocks until all is said. Errors: kInvalidArgument (a URL), kUnavailable (no server there), kCancelled (by
// SIGINT before the first request that counts). Requests that fail are no error: they are in the records.
Result<BenchResult> run_bench(const BenchOptions& options, const std::vector<Dialogue>& dialogues,
                              const Clock& clock, ProgressListener progress);

}  // namespace loci
