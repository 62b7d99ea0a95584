// SPDX-License-Identifier: Apache-2.0
// Kernels for simulated_test.cc: each shows one rule of the language.
#include "loci/compute/cuda/simulated/simulated_testing.h"

namespace loci::cuda {
namespace {

__global__ void reverse_block(IntegersParams p) {
  follow_previous();
  auto* shared = shared_memory<int>();
  const unsigned i = threadIdx.x, at = blockIdx.x * blockDim.x;
  shared[i] = p.values[at + i];
  __syncthreads();
  p.values[at + i] = shared[blockDim.x - 1 - i];
}

// As above, but nothing orders the two halves.
__global__ void reverse_block_unordered(IntegersParams p) {
  follow_previous();
  auto* shared = shared_memory<int>();
  const unsigned i = threadIdx.x;
  shared[i] = p.values[i];
  p.values[i] = shared[blockDim.x - 1 - i];
}

__global__ void sum_warp(FloatsParams p) {
  follow_previous();
  const float sum = warp_sum(p.values[threadIdx.x]);
  const unsigned odd = __ballot_sync(~0u, threadIdx.x % 2 == 1);
  p.values[threadIdx.x] = odd == 0xaaaaaaaau ? sum : -1;
}

// c[16][8] = a[16][16] * b[16][8], by one warp: a, b and c row-major.
template <class T>
__global__ void multiply_tile(TileParams p) {
  follow_previous();
  auto* a = shared_memory<T>();
  T* b = a + 16 * 16;
  const auto* from_a = static_cast<const T*>(p.a);
  const auto* from_b = static_cast<const T*>(p.b);
  const unsigned l = lane_id();
  copy_async_16(a + 8 * l, from_a + 8 * l);
  if (l < 16) copy_async_16(b + 8 * l, from_b + 8 * l);
  copy_async_commit();
  copy_async_wait<0>();
  __syncwarp();
  std::uint32_t fragment_a[4], fragment_b[4], columns[2];
  load_matrix_x4(fragment_a, a + (l % 16) * 16 + l / 16 * 8);
  load_matrix_x4_transposed(fragment_b, b + (l % 16) * 8);
  columns[0] = fragment_b[0];
  columns[1] = fragment_b[1];
  float d[4] = {};
  mma_16x8x16<T>(d, fragment_a, columns);
  const unsigned row = l / 4, column = 2 * (l % 4);
  p.c[row * 8 + column] = d[0];
  p.c[row * 8 + column + 1] = d[1];
  p.c[(row + 8) * 8 + column] = d[2];
  p.c[(row + 8) * 8 + column + 1] = d[3];
}

__global__ void read_before_arrival(FloatsParams p) {
  follow_previous();
  auto* shared = shared_memory<float>();
  copy_async_16(shared + 4 * threadIdx.x, p.values + 4 * threadIdx.x);
  copy_async_commit();
  const float early = shared[4 * threadIdx.x];
  copy_async_wait<0>();
  p.values[4 * threadIdx.x] = early;
  p.values[4 * threadIdx.x + 1] = shared[4 * threadIdx.x + 1];
}

__global__ void add_one(IntegersParams p) {
  follow_previous();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.count) p.values[i] += 1;
}

template <Waits waits>
__global__ void copy_values(IntegersParams p) {
  release_next();
  if (waits == Waits::kBeforeReading) await_previous();
  const int value = threadIdx.x < p.count ? p.values[threadIdx.x] : 0;
  if (waits == Waits::kAfterReading) await_previous();
  if (threadIdx.x < p.count) p.values[p.count + threadIdx.x] = value;
}

}  // namespace

void launch_reverse(const IntegersParams& params, bool ordered, Stream& stream, std::uint32_t shared_bytes) {
  launch("reverse", ordered ? reverse_block : reverse_block_unordered,
         {.grid = {params.count / 128}, .block = {128}, .shared_bytes = shared_bytes}, params, stream);
}
void launch_sum_warp(const FloatsParams& params, Stream& stream) {
  launch("sum_warp", sum_warp, {.grid = {1}, .block = {32}}, params, stream);
}
void launch_multiply_tile(const TileParams& params, ElementType type, Stream& stream) {
  launch("multiply_tile", type == ElementType::kHalf ? multiply_tile<Half> : multiply_tile<BFloat16>,
         {.grid = {1}, .block = {32}, .shared_bytes = 1024}, params, stream);
}
void launch_read_before_arrival(const FloatsParams& params, Stream& stream) {
  launch("read_before_arrival", read_before_arrival, {.grid = {1}, .block = {32}, .shared_bytes = 512},
         params, stream);
}
void launch_add_one(const IntegersParams& params, Stream& stream) {
  launch("add_one", add_one, {.grid = {ceil_div(params.count, 64)}, .block = {64}}, params, stream);
}

void launch_copy(const IntegersParams& params, Waits waits, Stream& stream) {
  launch("copy_values",
         waits == Waits::kBeforeReading  ? copy_values<Waits::kBeforeReading>
         : waits == Waits::kAfterReading ? copy_values<Waits::kAfterReading>
                                         : copy_values<Waits::kNever>,
         {.grid = {1}, .block = {32}}, params, stream);
}

}  // namespace loci::cuda
