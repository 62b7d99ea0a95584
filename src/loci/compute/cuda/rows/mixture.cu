// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: which experts compute which rows, the inputs of each, and the sum of their outputs.
//
// Routing is two kernels. A warp chooses a row's experts. Then a warp an expert looks at all choices twice:
// first it counts those of lower experts, which is where its inputs begin, then it numbers its own rows in
// order. So nothing is waited for, no order is left to chance, and the cost is uses * rows / 16 reads of
// cached words a lane.
#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/rows/elements.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kRouteThreads = 128;
constexpr std::uint32_t kThreads = 256;

// Ascends with the score; NaN is -inf, and the zeros are one.
LOCI_DEVICE unsigned score_key(float score) {
  if (!(score > -INFINITY)) return 0;
  const unsigned bits = __float_as_uint(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
LOCI_DEVICE unsigned warp_max(unsigned v) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(~0u, v, offset);
    v = other > v ? other : v;
  }
  return v;
}
LOCI_DEVICE unsigned warp_min(unsigned v) { return ~warp_max(~v); }
LOCI_DEVICE unsigned warp_count(unsigned v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

// The weight of a score before it is divided by the sum. Where all are -inf all are equal.
LOCI_DEVICE float score_weight(float score, float best) {
  return expf(fmaxf(score - fmaxf(best, -3.40282347e38f), -87.0f));
}

// A warp a row. A lane remembers which of its experts (lane, lane + 32, ...) are chosen in a bit each.
__global__ __launch_bounds__(kRouteThreads) void choose_experts(RouteArguments p) {
  follow_previous();
  const unsigned row = blockIdx.x * (kRouteThreads / 32) + warp_id(), lane = lane_id();
  if (row >= p.rows) return;
  const float* scores = p.scores + std::size_t{row} * p.experts;
  std::uint32_t* chosen = p.chosen + std::size_t{row} * p.uses;
  float* weights = p.weights + std::size_t{row} * p.uses;
  unsigned taken = 0, best_expert = 0;
  for (unsigned use = 0; use < p.uses; ++use) {
    unsigned key = 0, expert = UINT32_MAX;
    for (unsigned e = lane, bit = 1; e < p.experts; e += 32, bit *= 2) {
      if ((taken & bit) != 0) continue;
      const unsigned of_score = score_key(scores[e]);
      if (expert == UINT32_MAX || of_score > key) {
        key = of_score;
        expert = e;
      }
    }
    const unsigned best = warp_max(key);
    const unsigned winner = warp_min(expert != UINT32_MAX && key == best ? expert : UINT32_MAX);
    if (winner % 32 == lane) taken |= 1u << winner / 32;
    if (use == 0) best_expert = winner;
  }
  const float best = scores[best_expert];
  float sum = 0;
  if (!p.normalised) {
    for (unsigned e = lane; e < p.experts; e += 32) sum += score_weight(scores[e], best);
    sum = warp_sum(sum);
  }
  // Experts 32 i .. 32 i + 31 are the lanes' bit i: so the chosen ones come in ascending order.
  unsigned use = 0;
  for (unsigned i = 0; i * 32 < p.experts; ++i) {
    const unsigned members = __ballot_sync(~0u, (taken >> i & 1u) != 0);
    if ((members >> lane & 1u) != 0) chosen[use + __popc(members & ((1u << lane) - 1))] = 32 * i + lane;
    use += __popc(members);
  }
  __syncwarp();
  if (p.normalised) {
    for (unsigned i = 0; i < p.uses; ++i) sum += score_weight(scores[chosen[i]], best);
  }
  for (unsigned i = lane; i < p.uses; i += 32) weights[i] = score_weight(scores[chosen[i]], best) / sum;
}

// A warp an expert; the one beyond the last writes the end.
__global__ __launch_bounds__(kRouteThreads) void place_experts(RouteArguments p) {
  follow_previous();
  const unsigned expert = blockIdx.x * (kRouteThreads / 32) + warp_id(), lane = lane_id();
  if (expert > p.experts) return;
  unsigned lower = 0;
  for (unsigned i = lane; i < p.rows * p.uses; i += 32) lower += p.chosen[i] < expert ? 1 : 0;
  unsigned place = warp_count(lower);
  if (lane == 0) p.offsets[expert] = place;
  if (expert == p.experts) return;
  for (unsigned begin = 0; begin < p.rows; begin += 32) {
    const unsigned row = begin + lane;
    unsigned use = p.uses;
    if (row < p.rows) {
      for (unsigned i = 0; i < p.uses; ++i) {
        if (p.chosen[std::size_t{row} * p.uses + i] == expert) use = i;
      }
    }
    const unsigned members = __ballot_sync(~0u, use < p.uses);
    if (use < p.uses) {
      const unsigned own = place + __popc(members & ((1u << lane) - 1));
      p.sources[own] = row;
      p.places[std::size_t{row} * p.uses + use] = own;
    }
    place += __popc(members);
  }
}

struct GatherParams {
  const std::uint16_t* input;
  const std::uint32_t* sources;
  std::uint16_t* output;
  std::uint32_t count;
  std::uint32_t width;
};
// blockIdx.x: a row of the output.
template <class Piece>
__global__ __launch_bounds__(kThreads) void gather_pieces(GatherParams p) {
  follow_previous();
  const unsigned of_row = p.width / (sizeof(Piece) / sizeof(std::uint16_t));
  const unsigned at = blockIdx.y * kThreads + threadIdx.x;
  if (at >= of_row) return;
  const std::size_t from = p.sources[blockIdx.x], to = blockIdx.x;
  reinterpret_cast<Piece*>(p.output)[to * of_row + at] =
      reinterpret_cast<const Piece*>(p.input)[from * of_row + at];
}

// blockIdx.x: a row; a thread has N neighbouring values of it, and adds its uses up in order.
template <int N>
__global__ __launch_bounds__(kThreads) void combine_values(CombineArguments p) {
  follow_previous();
  const std::size_t row = blockIdx.x;
  const unsigned first = (blockIdx.y * kThreads + threadIdx.x) * N;
  if (first >= p.width) return;
  float sum[N] = {};
  for (unsigned use = 0; use < p.uses; ++use) {
    const float weight = p.weights[row * p.uses + use];
    float v[N];
    load_floats(p.products + std::uint64_t{p.places[row * p.uses + use]} * p.width + first, v);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = fmaf(weight, v[k], sum[k]);
  }
  store_floats(p.output + row * p.width + first, sum);
}

}  // namespace

void route(const RouteArguments& arguments, Stream& stream) {
  const RouteArguments& a = arguments;
  constexpr std::uint32_t kExpertsMax = 32 * 32;
  LOCI_CHECK(a.uses > 0 && a.uses <= a.experts && a.experts <= kExpertsMax, "experts that route serves");
  const std::uint32_t warps = kRouteThreads / kWarp;
  launch("choose_experts", choose_experts, {.grid = {ceil_div(a.rows, warps)}, .block = {kRouteThreads}}, a,
         stream);
  launch("place_experts", place_experts, {.grid = {ceil_div(a.experts + 1, warps)}, .block = {kRouteThreads}},
         a, stream);
}

void gather_rows(const void* input, const std::uint32_t* sources, std::uint32_t count, std::uint32_t width,
                 void* output, Stream& stream) {
  const bool runs = width % kRun == 0 && aligned_16(input) && aligned_16(output);
  launch("gather_rows", runs ? gather_pieces<uint4> : gather_pieces<std::uint16_t>,
         {.grid = {count, ceil_div(width, kThreads * (runs ? kRun : 1))}, .block = {kThreads}},
         GatherParams{static_cast<const std::uint16_t*>(input), sources, static_cast<std::uint16_t*>(output),
                      count, width},
         stream);
}

void combine(const CombineArguments& arguments, Stream& stream) {
  const CombineArguments& a = arguments;
  const bool fours = a.width % 4 == 0 && aligned_16(a.products) && aligned_16(a.output);
  launch("combine", fours ? combine_values<4> : combine_values<1>,
         {.grid = {a.rows, ceil_div(a.width, kThreads * (fours ? 4 : 1))}, .block = {kThreads}}, a, stream);
}

}  // namespace loci::cuda
