// SPDX-License-Identifier: Apache-2.0
// Heads of new tokens, tokens of blocks, and rows of blocks that came as hidden states. A head is a group of
// lanes' work, a run of 8 values a lane; rotation takes its partners from the other lanes through shared
// memory, so that any layout and number of rotated dimensions goes.
#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/rows/elements.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kPlaceThreads = 128;
constexpr std::uint32_t kCopyThreads = 128;
constexpr std::uint32_t kStageThreads = 256;
constexpr std::uint32_t kStageRuns = 4;  // of a thread

// Over a group of kLanes neighbouring lanes.
template <int kLanes>
LOCI_DEVICE float group_sum(float v) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

// v: values [first, first + 8) of a head whose values are all in `head`. cos, sin: pair i's.
LOCI_DEVICE void rotate_run(float (&v)[kRun], unsigned first, const float* head, const float2* rope,
                            unsigned pairs, RopeLayout layout) {
  if (first >= 2 * pairs) return;
  if (layout == RopeLayout::kHalves && pairs % kRun == 0) {  // partners and turns are runs, too
    const bool second = first >= pairs;
    float partner[kRun], turns[2 * kRun];
    load_floats(head + (second ? first - pairs : first + pairs), partner);
    load_floats(reinterpret_cast<const float*>(rope + (second ? first - pairs : first)), turns);
#pragma unroll
    for (unsigned k = 0; k < kRun; ++k) {
      v[k] = fmaf(v[k], turns[2 * k], partner[k] * (second ? turns[2 * k + 1] : -turns[2 * k + 1]));
    }
    return;
  }
#pragma unroll
  for (unsigned k = 0; k < kRun; ++k) {
    const unsigned i = first + k;
    if (i >= 2 * pairs) break;
    const bool adjacent = layout == RopeLayout::kAdjacent;
    const bool second = adjacent ? i % 2 == 1 : i >= pairs;
    const unsigned pair = adjacent ? i / 2 : (second ? i - pairs : i);
    const unsigned partner = adjacent ? i ^ 1u : (second ? i - pairs : i + pairs);
    const float2 turn = rope[pair];
    v[k] = fmaf(v[k], turn.x, head[partner] * (second ? turn.y : -turn.y));
  }
}

// blockIdx.x: a row; a group of lanes has one of its heads: queries first, then keys, then values.
template <class T, int kLanes>
__global__ __launch_bounds__(kPlaceThreads) void place_heads(PlaceArguments p) {
  follow_previous();
  const unsigned units = p.heads + 2 * p.state.kv_heads, head_dim = p.state.head_dim;
  const unsigned group = threadIdx.x / kLanes, first = threadIdx.x % kLanes * kRun;
  const unsigned row = blockIdx.x, unit = blockIdx.y * (kPlaceThreads / kLanes) + group;
  const bool active = unit < units && first < head_dim;
  float v[kRun] = {};
  if (active)
    load_product(static_cast<const T*>(p.qkv) + (std::size_t{row} * units + unit) * head_dim + first, v);
  const bool query = unit < p.heads, key = !query && unit < p.heads + p.state.kv_heads;
  const float* weight = query ? p.query_norm : key ? p.key_norm : nullptr;

  float squares = 0;
#pragma unroll
  for (unsigned k = 0; k < kRun; ++k) squares = fmaf(v[k], v[k], squares);
  squares = group_sum<kLanes>(squares);
  if (weight != nullptr && active) {
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(head_dim) + p.norm_epsilon);
    float w[kRun];
    load_floats(weight + first, w);
#pragma unroll
    for (unsigned k = 0; k < kRun; ++k) v[k] = v[k] * scale * w[k];
  }
  float* head = shared_memory<float>() + group * head_dim;
  if (active) store_floats(head + first, v);
  __syncwarp();
  if (!active) return;
  if (p.rope != nullptr && (query || key)) {
    const unsigned pairs = p.rope_dimensions / 2;
    rotate_run(v, first, head, p.rope + std::uint64_t{p.positions[row]} * pairs, pairs, p.rope_layout);
  }
  if (query) {
#pragma unroll
    for (unsigned k = 0; k < kRun; ++k) v[k] = saturated<T>(v[k]);
    store_run(static_cast<T*>(p.queries) + (std::uint64_t{row} * p.heads + unit) * head_dim + first, v);
    return;
  }
  const unsigned place = p.places[row];
  if (place == PlaceArguments::kNowhere) return;
#pragma unroll
  for (unsigned k = 0; k < kRun; ++k) v[k] = finite<T>(v[k]);
  std::byte* of_head = key ? p.state.keys(place / 32, unit - p.heads)
                           : p.state.values(place / 32, unit - p.heads - p.state.kv_heads);
  store_run(reinterpret_cast<T*>(of_head) + place % 32 * head_dim + first, v);
}

template <class T, int kLanes>
void launch_heads(const PlaceArguments& a, Stream& stream) {
  const std::uint32_t groups = kPlaceThreads / kLanes;
  launch("place_rows", place_heads<T, kLanes>,
         {.grid = {a.rows, ceil_div(a.heads + 2 * a.state.kv_heads, groups)},
          .block = {kPlaceThreads},
          .shared_bytes = groups * a.state.head_dim * static_cast<std::uint32_t>(sizeof(float))},
         a, stream);
}

struct CopyParams {
  LayerState state;
  const TokenCopy* copies;
};
// blockIdx.x: a copy; blockIdx.y: a head's keys, then values, whose first tokens are contiguous.
__global__ __launch_bounds__(kCopyThreads) void copy_block_tokens(CopyParams p) {
  follow_previous();
  const TokenCopy copy = p.copies[blockIdx.x];
  const std::uint64_t head = blockIdx.y * p.state.head_bytes();
  const auto* from = reinterpret_cast<const uint4*>(p.state.keys(copy.from, 0) + head);
  auto* to = reinterpret_cast<uint4*>(p.state.keys(copy.to, 0) + head);
  const unsigned runs = copy.tokens * p.state.head_dim / kRun;
  for (unsigned i = threadIdx.x; i < runs; i += kCopyThreads) to[i] = from[i];
}

// blockIdx.x: a block of state; blockIdx.y: a piece of its rows.
__global__ __launch_bounds__(kStageThreads) void stage_blocks(StageArguments p) {
  follow_previous();
  const HiddenBlock block = p.blocks[blockIdx.x];
  const auto* from = reinterpret_cast<const uint4*>(p.state.keys(block.slot, 0));
  auto* to = reinterpret_cast<uint4*>(p.rows + blockIdx.x * p.block_bytes);
  const unsigned runs = static_cast<unsigned>(p.block_bytes / sizeof(uint4));
  const unsigned begin = blockIdx.y * kStageThreads * kStageRuns + threadIdx.x;
#pragma unroll
  for (unsigned k = 0; k < kStageRuns; ++k) {
    const unsigned i = begin + k * kStageThreads;
    if (i < runs) to[i] = from[i];
  }
  if (blockIdx.y == 0 && threadIdx.x < 32) {
    p.positions[blockIdx.x * 32 + threadIdx.x] = block.position + threadIdx.x;
    p.places[blockIdx.x * 32 + threadIdx.x] = block.slot * 32 + threadIdx.x;
  }
}

}  // namespace

void place_rows(const PlaceArguments& arguments, Stream& stream) {
  const PlaceArguments& a = arguments;
  const std::uint32_t head_dim = a.state.head_dim;
  LOCI_CHECK(head_dim > 0 && head_dim % kRun == 0 && head_dim <= kWarp * kRun,
             "a head's size that place_rows serves");
  LOCI_CHECK(a.rope == nullptr || (a.rope_dimensions <= head_dim && a.rope_dimensions % 2 == 0),
             "pairs of a head's dimensions rotate");
  LOCI_CHECK(aligned_16(a.qkv) && aligned_16(a.queries) && aligned_16(a.state.base) &&
                 a.state.slot_stride % 16 == 0 && aligned_16(a.query_norm) && aligned_16(a.key_norm) &&
                 aligned_16(a.rope),
             "heads begin at 16 bytes");
  with_elements(a.type, [&](auto element) {
    using T = decltype(element);
    if (head_dim <= 8 * kRun) {
      launch_heads<T, 8>(a, stream);
    } else if (head_dim <= 16 * kRun) {
      launch_heads<T, 16>(a, stream);
    } else {
      launch_heads<T, 32>(a, stream);
    }
  });
}

void copy_tokens(const LayerState& state, const TokenCopy* copies, std::uint32_t count, Stream& stream) {
  LOCI_CHECK(state.head_dim % kRun == 0 && aligned_16(state.base) && state.slot_stride % 16 == 0,
             "heads begin at 16 bytes");
  launch("copy_tokens", copy_block_tokens, {.grid = {count, 2 * state.kv_heads}, .block = {kCopyThreads}},
         CopyParams{state, copies}, stream);
}

void stage_hidden(const StageArguments& arguments, Stream& stream) {
  const StageArguments& a = arguments;
  LOCI_CHECK(a.count <= StageArguments::kBlocksMax, "not more blocks than a launch names");
  LOCI_CHECK(a.block_bytes % sizeof(uint4) == 0 && aligned_16(a.state.base) &&
                 a.state.slot_stride % 16 == 0 && aligned_16(a.rows),
             "rows begin at 16 bytes");
  launch("stage_hidden", stage_blocks,
         {.grid = {a.count, ceil_div(a.block_bytes / sizeof(uint4), kStageThreads * kStageRuns)},
          .block = {kStageThreads}},
         a, stream);
}

}  // namespace loci::cuda
