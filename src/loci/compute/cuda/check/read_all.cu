// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/check/read_all.h"

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

struct ReadParams {
  uint4* from;
  std::uint64_t count;
};

__global__ void __launch_bounds__(kThreads) read_values(ReadParams p) {
  follow_previous();
  unsigned sum = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.count;
       i += std::uint64_t{gridDim.x} * kThreads) {
    const uint4 v = p.from[i];
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  // As good as never, but the compiler cannot know.
  if (sum == 0x9e3779b9u) p.from[0].x = sum;
}

}  // namespace

void read_all(const void* from, std::uint64_t bytes, Stream& stream) {
  const ReadParams params{static_cast<uint4*>(const_cast<void*>(from)), bytes / 16};
  const std::uint32_t blocks = ceil_div(params.count, kThreads);
  launch("read_all", read_values, {.grid = {blocks < 1024 ? blocks : 1024}, .block = {kThreads}}, params,
         stream);
}

}  // namespace loci::cuda
