// SPDX-License-Identifier: Apache-2.0
// What `loci bench-compute` measures: the backend alone, without server, scheduler or sampler.
//
//   decode   after a prompt, tokens one at a time, each the one with the largest logit
//   prefill  a prompt in chunks of max_batch_tokens
//   streams  several sequences: their prompts together, then one token of each in every pass
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loci/base/status.h"
#include "loci/compute/make_backend.h"
#include "loci/model/open_source.h"

namespace loci {

enum class ComputeTest : std::uint8_t { kDecode, kPrefill, kStreams };

struct BenchComputeOptions {
  std::string model;  // as open_model_source()
  LoadOptions load;
  ComputeTest test = ComputeTest::kDecode;
  BackendOptions backend;        // what passes and sequences hold is set from the rest
  std::uint32_t prompt = 16;     // tokens; of each stream
  std::uint32_t generate = 128;  // tokens; of each stream; not for prefill
  std::uint32_t streams = 8;
  std::uint32_t max_batch_tokens = 512;
  std::uint32_t repeats = 1;  // the best one counts
  bool json = false;
};

struct BenchComputeResult {
  std::string test;
  std::string device;        // MadeBackend::chosen
  std::string backend;       // BackendInfo::description
  std::uint64_t tokens = 0;  // decode: generated; prefill: prompt; streams: both
  double seconds = 0;
  double tokens_per_second = 0;
  std::uint64_t weight_bytes = 0;
  double load_seconds = 0;  // packing
};

Result<BenchComputeResult> bench_compute(const BenchComputeOptions& options);
std::string format_bench_compute(const BenchComputeOptions& options, const BenchComputeResult& result);

// The command. `arguments`: those after `loci bench-compute`. Prints to standard output or standard error;
// returns the exit code.
int run_bench_compute(int count, const char* const* arguments);

}  // namespace loci
