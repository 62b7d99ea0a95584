// SPDX-License-Identifier: Apache-2.0
// attend(): which kernel, with how many stages; and the kernel that merges partial results.
#include "loci/compute/cuda/attention/attention.h"

#include "loci/base/check.h"
#include "loci/compute/cuda/attention/attention_kernels.h"
#include "loci/compute/cuda/attention/attention_tile.cuh"
#include "loci/compute/cuda/attention/attention_warpgroups.cuh"
#include "loci/compute/cuda/launch.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kMergeWarps = 4;
constexpr std::uint32_t kMergeAhead = 4;        // partials that are read at a time
constexpr std::uint32_t kWarpPairsMax = 32;     // of a prompt tile
constexpr std::uint32_t kReservedBytes = 1024;  // of a multiprocessor's shared memory, for each thread block

// A warp merges a pair's partials, in order; a lane has four dimensions of each 128.
template <class T>
__global__ void __launch_bounds__(32 * kMergeWarps, 4) merge_partials(AttentionParams p) {
  follow_previous();
  if (blockIdx.x >= p.a.counts->merges) return;
  const AttentionMerge merge = p.a.merges[blockIdx.x];
  const std::uint32_t pair = blockIdx.y * kMergeWarps + warp_id();
  if (pair >= merge.pairs) return;
  const std::uint32_t dims = p.a.state.head_dim, dim = 4 * lane_id();
  float maximum = lowest(), sum = 0, o[2][4] = {};
  for (std::uint32_t first = 0; first < merge.partials; first += kMergeAhead) {
    // All are on their way before the first is used.
    float2 statistics[kMergeAhead];
    float4 values[kMergeAhead][2];
#pragma unroll
    for (std::uint32_t i = 0; i < kMergeAhead; ++i) {
      const std::uint32_t at = min(first + i, merge.partials - 1);
      const std::size_t row = std::size_t{merge.partial + at * merge.stride} * kAttentionDecodePairs + pair;
      statistics[i] = *reinterpret_cast<const float2*>(p.a.partial_statistics + 2 * row);
      const float* from = p.a.partial_values + row * dims + dim;
      if (dim < dims) values[i][0] = *reinterpret_cast<const float4*>(from);
      if (dim + 128 < dims) values[i][1] = *reinterpret_cast<const float4*>(from + 128);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kMergeAhead; ++i) {
      if (first + i >= merge.partials) break;
      const Fold both(maximum, sum, statistics[i].x, statistics[i].y);
#pragma unroll
      for (std::uint32_t n = 0; n < 2; ++n) {
        if (dim + 128 * n >= dims) break;
        o[n][0] = both.value(o[n][0], values[i][n].x);
        o[n][1] = both.value(o[n][1], values[i][n].y);
        o[n][2] = both.value(o[n][2], values[i][n].z);
        o[n][3] = both.value(o[n][3], values[i][n].w);
      }
    }
  }
  const std::uint32_t of_run = merge.first_pair + pair;
  const std::uint32_t head = merge.kv_head * p.ratio + of_run % p.ratio;
  const std::size_t row = p.a.runs[merge.run].row + of_run / p.ratio;
  const Normalise normalise(p, head, maximum, sum);
  T* out = static_cast<T*>(p.a.output) + (row * p.a.heads + head) * dims + dim;
#pragma unroll
  for (std::uint32_t n = 0; n < 2; ++n) {
    if (dim + 128 * n >= dims) break;
    *reinterpret_cast<uint2*>(out + 128 * n) = make_uint2(pack2<T>(normalise(o[n][0]), normalise(o[n][1])),
                                                          pack2<T>(normalise(o[n][2]), normalise(o[n][3])));
  }
}

// As many stages as let two thread blocks share a multiprocessor; where that leaves fewer than two, what one
// alone can have.
std::uint32_t stages_of(const AttentionKernel& kernel, std::uint32_t shared_bytes_max,
                        std::uint32_t stages_max) {
  const auto stages = [&](std::uint32_t bytes) {
    return bytes < kernel.fixed_bytes ? 0 : (bytes - kernel.fixed_bytes) / kernel.stage_bytes;
  };
  const std::uint32_t half = (shared_bytes_max + kReservedBytes) / 2 - kReservedBytes;
  const std::uint32_t count = stages(half) >= 2 ? stages(half) : stages(shared_bytes_max);
  LOCI_CHECK(count > 0, "a step of the context fits into shared memory");
  return count < stages_max ? count : stages_max;
}

void check(const AttentionArguments& a) {
  const auto aligned = [](const void* pointer, std::uintptr_t to) {
    return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
  };
  LOCI_CHECK(a.state.head_dim > 0 && a.state.head_dim % 16 == 0 && a.state.head_dim <= 256,
             "head sizes are multiples of 16 up to 256");
  LOCI_CHECK(a.state.kv_heads > 0 && a.heads % a.state.kv_heads == 0,
             "each key/value head serves as many heads");
  LOCI_CHECK(aligned(a.queries, 16) && aligned(a.output, 16) && aligned(a.state.base, 16) &&
                 a.state.slot_stride % 16 == 0 && aligned(a.partial_values, 16) &&
                 aligned(a.partial_statistics, 8),
             "attention's memory is aligned");
  LOCI_CHECK(a.stages_max >= 1 && a.stages_max <= 4, "a ring has 1 to 4 stages");
  LOCI_CHECK(a.scale > 0, "attention's scale is above zero");
  LOCI_CHECK(a.split_keys % kAttentionTileKeys == 0, "splits are of whole steps");
}

void launch_warpgroups(const AttentionParams& params, Stream& stream) {
  const AttentionArguments& a = params.a;
  LOCI_CHECK(attention_has_warpgroups(stream.device().properties(), a.state.head_dim, a.split_keys != 0),
             "attention by warpgroups is for Hopper, and not for deterministic mode");
  AttendWarpgroupsParams all;
  all.p = params;
  // How many slots there are is not known here: as many as any device has memory for.
  constexpr std::uint64_t kMemoryMax = std::uint64_t{1} << 44, kSlotsMax = std::uint64_t{1} << 31;
  const std::uint64_t slots = kMemoryMax / a.state.slot_stride;
  const bool made = make_tile_map(
      {.base = a.state.base,
       .size = {a.state.head_dim, 2 * 32 * a.state.kv_heads, slots < kSlotsMax ? slots : kSlotsMax},
       .stride_bytes = {std::uint64_t{a.state.head_dim} * 2, a.state.slot_stride},
       .box_rows = 32},
      all.map);
  if (!made) {
    return stream.note_failure(
        Status(StatusCode::kInternal, "the driver refused a map of attention's state"));
  }
  const AttendWarpgroupsKernel kernel =
      (a.type == ElementType::kHalf ? attend_warpgroups_kernel_half
                                    : attend_warpgroups_kernel_bfloat16)(a.state.head_dim);
  // A block a multiprocessor, which takes one task after the other.
  const std::uint32_t blocks = min(a.warpgroup_tasks_max, stream.device().properties().multiprocessors);
  launch("attend_warpgroups", kernel.kernel,
         {.grid = {blocks}, .block = {kAttendWarpgroupsThreads}, .shared_bytes = kernel.shared_bytes}, all,
         stream);
}

}  // namespace

bool attention_has_warpgroups(const DeviceProperties& device, std::uint32_t head_dim, bool deterministic) {
  return has_warpgroups(device) && (head_dim == 64 || head_dim == 128) && !deterministic;
}

void attend(const AttentionArguments& arguments, Stream& stream) {
  check(arguments);
  constexpr float kLog2E = 1.4426950408889634f;
  AttentionParams params;
  params.a = arguments;
  params.ratio = arguments.heads / arguments.state.kv_heads;
  params.multiplier = (arguments.softcap != 0 ? arguments.softcap : arguments.scale) * kLog2E;
  params.inner = arguments.softcap != 0 ? arguments.scale / arguments.softcap : 0;
  params.warp_rows = (kWarpPairsMax - 1) / params.ratio + 1;
  const bool half = arguments.type == ElementType::kHalf;
  if (arguments.warpgroup_tasks_max > 0) launch_warpgroups(params, stream);
  if (arguments.tasks_max > 0) {
    const AttentionKernel kernel = (half ? attention_kernel_half : attention_kernel_bfloat16)(
        arguments.state.head_dim, arguments.prompt_tiles);
    params.stages = stages_of(kernel, stream.device().properties().shared_bytes_max, arguments.stages_max);
    launch(arguments.prompt_tiles ? "attend_mixed" : "attend_decode", kernel.kernel,
           {.grid = {arguments.tasks_max},
            .block = {kAttentionThreads},
            .shared_bytes = kernel.fixed_bytes + params.stages * kernel.stage_bytes},
           params, stream);
  }
  launch("merge_partials", half ? merge_partials<Half> : merge_partials<BFloat16>,
         {.grid = {arguments.merges_max, kAttentionDecodePairs / kMergeWarps}, .block = {32 * kMergeWarps}},
         params, stream);
}

}  // namespace loci::cuda
