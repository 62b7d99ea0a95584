// SPDX-License-Identifier: Apache-2.0
// One row in the sampling kernels (sampling.cu): its part of the workspace, its parameters, its tokens'
// weights and masses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "loci/base/exp_negative.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

using Mass = unsigned long long;

inline constexpr unsigned kPartTokens = 4096;
inline constexpr unsigned kDigitBits = 10;
inline constexpr unsigned kBins = 1u << kDigitBits;
inline constexpr unsigned kWeightBits = 30;          // of a float in [0, 1]
inline constexpr float kMassOne = 8796093022208.0f;  // 2^43: masses of 2^20 tokens sum to 2^63

// A row's working memory. It is followed by Peak[parts], Mass[parts] and uint2[vocabulary] candidates
// {weight's bits, id}.
struct RowSpace {
  Mass masses[kBins];  // of weights, by their upper bits
  unsigned counts[kBins];
  Mass total;           // of all weights
  unsigned candidates;  // number of candidates
  unsigned padding;
};
struct Peak {
  unsigned key, id;
};

struct Space {
  RowSpace* row;
  Peak* peaks;
  Mass* part_masses;
  uint2* candidates;
};

LOCI_HOST_DEVICE unsigned parts_of(unsigned vocabulary) {
  return (vocabulary + kPartTokens - 1) / kPartTokens;
}
LOCI_HOST_DEVICE std::uint64_t row_space_bytes(unsigned vocabulary) {
  const std::uint64_t each = sizeof(Peak) + sizeof(Mass);
  return (sizeof(RowSpace) + parts_of(vocabulary) * each + std::uint64_t{vocabulary} * sizeof(uint2) + 15) /
         16 * 16;
}
LOCI_DEVICE Space space_of(const SampleArguments& p, unsigned row) {
  const unsigned parts = parts_of(p.vocabulary);
  std::byte* at = static_cast<std::byte*>(p.workspace) + row * row_space_bytes(p.vocabulary);
  Space space;
  space.row = reinterpret_cast<RowSpace*>(at);
  space.peaks = reinterpret_cast<Peak*>(at + sizeof(RowSpace));
  space.part_masses = reinterpret_cast<Mass*>(space.peaks + parts);
  space.candidates = reinterpret_cast<uint2*>(space.part_masses + parts);
  return space;
}

// --- a row's parameters, as its kernels need them ---

struct RowPlan {
  const float* logits;
  unsigned top_k;       // 0: all
  unsigned weight_min;  // bits of the least weight that min-p keeps
  float top_p;
  bool greedy;        // settle() may also set it, for an extreme greatest logit
  bool whole;         // nothing is cut off
  float best, scale;  // after settle()
};
LOCI_DEVICE RowPlan plan_of(const SampleArguments& p, const SampleRow& row) {
  RowPlan plan;
  plan.logits = p.logits + std::size_t{row.logits_row} * p.vocabulary;
  plan.top_k = row.top_k >= p.vocabulary ? 0 : row.top_k;
  plan.weight_min = row.min_p > 0.0f ? __float_as_uint(row.min_p) : 0;
  plan.top_p = row.top_p;
  plan.greedy = row.temperature == 0.0f || row.top_k == 1;
  plan.whole = plan.top_k == 0 && row.top_p >= 1.0f && plan.weight_min == 0;
  plan.best = 0;
  // A temperature whose inverse would overflow is as good as greedy.
  plan.scale = fminf(1.0f / row.temperature, 1e30f);
  return plan;
}
LOCI_DEVICE void settle(RowPlan& plan, const Peak& peak) {
  plan.best = plan.logits[peak.id];
  plan.greedy = plan.greedy || !(fabsf(plan.best) <= 3.40282347e38f);
}
// The weight's bits.
LOCI_DEVICE unsigned weigh_logit(const RowPlan& plan, float logit) {
  const float x = (logit - plan.best) * plan.scale;
  return x == x ? __float_as_uint(exp_negative(x)) : 0;
}
LOCI_DEVICE Mass mass_of(unsigned weight) { return static_cast<Mass>(__uint_as_float(weight) * kMassOne); }

// Calls f(logit, id, there) for each token of a part, by whole warps. Ids ascend within a thread.
template <class F>
LOCI_DEVICE void each_logit(const float* logits, unsigned part, unsigned vocabulary, const F& f) {
  const bool fours = vocabulary % 4 == 0;  // then rows begin at multiples of 16 bytes
  const unsigned begin = part * kPartTokens,
                 end = vocabulary < begin + kPartTokens ? vocabulary : begin + kPartTokens;
  for (unsigned at = begin; at < end; at += 4 * blockDim.x) {
    const unsigned first = at + 4 * threadIdx.x;
    float v[4] = {};
    if (fours && first < vocabulary) {
      const float4 four = *reinterpret_cast<const float4*>(logits + first);
      v[0] = four.x;
      v[1] = four.y;
      v[2] = four.z;
      v[3] = four.w;
    }
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const bool there = first + k < vocabulary;
      if (!fours && there) v[k] = logits[first + k];
      f(v[k], first + k, there);
    }
  }
}

}  // namespace loci::cuda
