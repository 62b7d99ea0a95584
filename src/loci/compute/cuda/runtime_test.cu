// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/runtime_testing.h"

#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

__global__ void count_up(CountParams p) {
  follow_previous();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  unsigned state = i;
  for (unsigned round = 0; round < p.rounds; ++round) state = state * 1664525u + 1013904223u;
  // Always 1, which no compiler knows.
  p.values[i] += state == 0xdeadbeefu && p.rounds > 1u << 30 ? 0u : 1u;
}

__global__ void write_nowhere(CountParams p) {
  follow_previous();
  p.values[threadIdx.x + (1ull << 40)] = p.count;
}

}  // namespace

void launch_count(const CountParams& params, Stream& stream) {
  launch("count_up", count_up, {.grid = {ceil_div(params.count, 128)}, .block = {128}}, params, stream);
}

void launch_write_nowhere(const CountParams& params, Stream& stream) {
  launch("write_nowhere", write_nowhere, {.grid = {1}, .block = {32}}, params, stream);
}

}  // namespace loci::cuda
