// SPDX-License-Identifier: Apache-2.0
// What the threads of a block compute together for the sampling kernels (sampling.cu): the best logit, sums,
// and the bin at which a sum over bins reaches a given value. Sums are of integers, so their order does not
// matter.
#pragma once

#include "loci/compute/cuda/rows/sampling_row.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

// A key that ascends with the logit. NaN comes first, and both zeros have the same key.
LOCI_DEVICE unsigned logit_key(float logit) {
  if (!(logit == logit)) return 0;
  const unsigned bits = __float_as_uint(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
LOCI_DEVICE bool better(const Peak& a, const Peak& b) { return a.key != b.key ? a.key > b.key : a.id < b.id; }
// Gives every thread the best peak of all. `scratch`: [32]. It begins and ends with a barrier.
LOCI_DEVICE Peak block_peak(Peak mine, Peak* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Peak other{__shfl_xor_sync(~0u, mine.key, offset), __shfl_xor_sync(~0u, mine.id, offset)};
    if (better(other, mine)) mine = other;
  }
  __syncthreads();
  if (lane_id() == 0) scratch[warp_id()] = mine;
  __syncthreads();
  for (unsigned i = 0; i < blockDim.x / 32; ++i) {
    const Peak other = scratch[i];
    if (better(other, mine)) mine = other;
  }
  __syncthreads();
  return mine;
}
LOCI_DEVICE Peak row_peak(const Space& space, unsigned vocabulary, Peak* scratch) {
  Peak mine{0, UINT32_MAX};
  for (unsigned i = threadIdx.x; i < parts_of(vocabulary); i += blockDim.x) {
    if (better(space.peaks[i], mine)) mine = space.peaks[i];
  }
  return block_peak(mine, scratch);
}

// The sum over the threads before this one; `total`: over all threads. It begins and ends with a barrier.
LOCI_DEVICE Mass sum_before(Mass mine, Mass& total, Mass* scratch) {
  Mass sum = mine;
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const Mass other = __shfl_up_sync(~0u, sum, offset);
    if (lane_id() >= offset) sum += other;
  }
  __syncthreads();
  if (lane_id() == 31) scratch[warp_id()] = sum;
  __syncthreads();
  Mass before = sum - mine;
  total = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) {
    if (i < warp_id()) before += scratch[i];
    total += scratch[i];
  }
  __syncthreads();
  return before;
}
LOCI_DEVICE Mass block_total(Mass mine, Mass* scratch) {
  Mass total;
  sum_before(mine, total, scratch);
  return total;
}

struct Cut {
  unsigned bin;
  Mass before;  // sum of the bins above it
};
// The bin, from the greatest down, at which the sum reaches `wanted` (> 0); bin 0 if it never does. of(bin)
// is the content of a bin. `found` is in shared memory.
template <class Of>
LOCI_DEVICE Cut find_cut(Mass wanted, const Of& of, Cut* found, Mass* scratch) {
  const unsigned each = kBins / blockDim.x, top = kBins - 1 - threadIdx.x * each;
  Mass mine = 0, total;
  for (unsigned i = 0; i < each; ++i) mine += of(top - i);
  Mass before = sum_before(mine, total, scratch);
  if (threadIdx.x == 0 && total < wanted) *found = {0, total - of(0)};
  if (before < wanted && wanted <= before + mine) {
    unsigned bin = top;
    for (; before + of(bin) < wanted; --bin) before += of(bin);
    *found = {bin, before};
  }
  __syncthreads();
  return *found;
}
// Adds to a sum of two words. The order of additions does not matter, because carries commute.
LOCI_DEVICE void add_mass(unsigned* low, unsigned* high, Mass mass) {
  const auto part = static_cast<unsigned>(mass);
  const unsigned old = atomicAdd(low, part);
  const unsigned carry = static_cast<unsigned>(mass >> 32) + (old + part < old ? 1u : 0u);
  if (carry != 0) atomicAdd(high, carry);
}

// Shared memory of all kernels here.
struct Shared {
  unsigned low[kBins], high[kBins];
  Mass scratch[32];
  Peak peaks[32];
  Cut cut;
};

}  // namespace loci::cuda
