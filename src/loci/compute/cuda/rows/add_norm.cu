// SPDX-License-Identifier: Apache-2.0
// The residual stream: a row a thread block, whose threads keep the row in registers between the sums
// (RegisterRow, runs of 8 values), so that it is read and written once. Rows that are too wide or not made of
// runs are read again from memory each time (MemoryRow).
//
// A row's sums: each thread adds its own values in ascending order, then the warp's tree, then the tree of
// warps. The number of threads depends on the width alone, so a row's bits do not depend on other rows.
#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/rows/elements.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kSumScratchBytes = 2 * 32 * sizeof(float);

// Sums over the block. Two buffers take turns, so that one barrier a sum is enough.
class BlockSum {
 public:
  LOCI_DEVICE explicit BlockSum(float* scratch) : scratch_(scratch) {}
  LOCI_DEVICE float operator()(float v) {
    v = warp_sum(v);
    if (blockDim.x == 32) return v;
    if (lane_id() == 0) scratch_[turn_ + warp_id()] = v;
    __syncthreads();
    v = warp_sum(lane_id() < blockDim.x / 32 ? scratch_[turn_ + lane_id()] : 0.0f);
    turn_ ^= 32u;
    return v;
  }

 private:
  float* scratch_;  // [2][32]
  unsigned turn_ = 0;
};

// each(f) and update(f) call f(values, index of the first in the row, slot) for this thread's runs.
template <int kSlots, int kBlockThreads>
class RegisterRow {
 public:
  static constexpr int kValues = kRun;
  static constexpr unsigned kThreadsMax = kBlockThreads;
  static constexpr unsigned kWidthMax = kSlots * kBlockThreads * kRun;
  LOCI_DEVICE RegisterRow(const float* from, unsigned width) : width_(width) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const unsigned i = index(slot);
      if (i < width_) load_floats(from + i, values_[slot]);
    }
  }
  template <class F>
  LOCI_DEVICE void each(const F& f) const {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const unsigned i = index(slot);
      if (i < width_) f(values_[slot], i, slot);
    }
  }
  template <class F>
  LOCI_DEVICE void update(const F& f) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const unsigned i = index(slot);
      if (i < width_) f(values_[slot], i, slot);
    }
  }
  LOCI_DEVICE float value(unsigned /*index*/, int slot, int k) const { return values_[slot][k]; }
  LOCI_DEVICE void store(float* to) const {
    each([&](const auto& v, unsigned i, int) { store_floats(to + i, v); });
  }

 private:
  LOCI_DEVICE unsigned index(int slot) const { return (slot * blockDim.x + threadIdx.x) * kRun; }
  float values_[kSlots][kRun] = {};
  unsigned width_;
};

class MemoryRow {
 public:
  static constexpr int kValues = 1;
  static constexpr unsigned kThreadsMax = 256;
  LOCI_DEVICE MemoryRow(const float* from, unsigned width) : row_(const_cast<float*>(from)), width_(width) {}
  template <class F>
  LOCI_DEVICE void each(const F& f) const {
    for (unsigned i = threadIdx.x; i < width_; i += blockDim.x) {
      const float v[1] = {row_[i]};
      f(v, i, 0);
    }
  }
  template <class F>
  LOCI_DEVICE void update(const F& f) {
    for (unsigned i = threadIdx.x; i < width_; i += blockDim.x) {
      float v[1] = {row_[i]};
      f(v, i, 0);
      row_[i] = v[0];
    }
  }
  LOCI_DEVICE float value(unsigned index, int /*slot*/, int /*k*/) const { return row_[index]; }
  LOCI_DEVICE void store(float* /*to*/) const {}  // update() did

 private:
  float* row_;
  unsigned width_;
};

// y = (x - mean) * scale * weight + bias
struct Moments {
  float mean, scale;
};
template <class Row>
LOCI_DEVICE Moments moments_of(const Row& row, const RowNorm& norm, unsigned width, BlockSum& sum) {
  float mean = 0;
  if (norm.kind == NormKind::kLayer) {
    float total = 0;
    row.each([&](const auto& v, unsigned, int) {
#pragma unroll
      for (int k = 0; k < Row::kValues; ++k) total += v[k];
    });
    mean = sum(total) / static_cast<float>(width);
  }
  float squares = 0;
  row.each([&](const auto& v, unsigned, int) {
#pragma unroll
    for (int k = 0; k < Row::kValues; ++k) squares = fmaf(v[k] - mean, v[k] - mean, squares);
  });
  return {mean, 1.0f / sqrtf(sum(squares) / static_cast<float>(width) + norm.epsilon)};
}

template <int N>
LOCI_DEVICE void normalise(const float (&v)[N], unsigned i, const RowNorm& norm, const Moments& moments,
                           float (&out)[N]) {
  float weight[N], bias[N] = {};
  load_floats(norm.weight + i, weight);
  if (norm.bias != nullptr) load_floats(norm.bias + i, bias);
#pragma unroll
  for (int k = 0; k < N; ++k) out[k] = fmaf((v[k] - moments.mean) * moments.scale, weight[k], bias[k]);
}

template <class Row>
LOCI_DEVICE void add_change(Row& residual, const Row& change, const RowNorm& post, unsigned width,
                            BlockSum& sum) {
  Moments moments{0, 1};
  if (post.present()) moments = moments_of(change, post, width, sum);
  residual.update([&](auto& v, unsigned i, int slot) {
    float c[Row::kValues];
#pragma unroll
    for (int k = 0; k < Row::kValues; ++k) c[k] = change.value(i, slot, k);
    if (post.present()) {
      float y[Row::kValues];
      normalise(c, i, post, moments, y);
#pragma unroll
      for (int k = 0; k < Row::kValues; ++k) v[k] += y[k];
    } else {
#pragma unroll
      for (int k = 0; k < Row::kValues; ++k) v[k] += c[k];
    }
  });
}

// The residual, normalised where there is a norm, as elements and floats.
template <class T, class Row>
LOCI_DEVICE void write_row(const Row& residual, const RowNorm& norm, const Moments& moments, T* elements,
                           float* floats) {
  residual.each([&](const auto& v, unsigned i, int) {
    float y[Row::kValues];
    if (norm.present()) {
      normalise(v, i, norm, moments, y);
    } else {
#pragma unroll
      for (int k = 0; k < Row::kValues; ++k) y[k] = v[k];
    }
    if (floats != nullptr) store_floats(floats + i, y);
    if (elements == nullptr) return;
#pragma unroll
    for (int k = 0; k < Row::kValues; ++k) y[k] = saturated<T>(y[k]);
    store_run(elements + i, y);
  });
}

template <class T, class Row>
__global__ __launch_bounds__(Row::kThreadsMax) void add_norm_rows(AddNormArguments p) {
  follow_previous();
  BlockSum sum(shared_memory<float>());
  const std::size_t from =
      std::size_t{p.rows_from != nullptr ? p.rows_from[blockIdx.x] : blockIdx.x} * p.width;
  const std::size_t to = std::size_t{blockIdx.x} * p.width;
  Row residual(p.residual + from, p.width);
  if (p.change != nullptr) {
    const Row change(p.change + from, p.width);
    add_change(residual, change, p.post, p.width, sum);
    if (p.change2 != nullptr) {
      const Row change2(p.change2 + from, p.width);
      add_change(residual, change2, p.post2, p.width, sum);
    }
    residual.store(p.residual + from);
  }
  const RowNorm& norm2 = p.norm2.present() ? p.norm2 : p.norm;
  Moments moments{0, 1};
  if (p.norm.present() || norm2.present()) {
    moments = moments_of(residual, p.norm.present() ? p.norm : norm2, p.width, sum);
  }
  T* output = static_cast<T*>(p.output);
  T* output2 = static_cast<T*>(p.output2);
  if (output != nullptr || p.output_floats != nullptr) {
    write_row(residual, p.norm, moments, output == nullptr ? nullptr : output + to,
              p.output_floats == nullptr ? nullptr : p.output_floats + to);
  }
  if (output2 != nullptr) write_row<T>(residual, norm2, moments, output2 + to, nullptr);
}

using NarrowRow = RegisterRow<1, 1024>;
using WideRow = RegisterRow<4, 512>;

template <class Row>
void launch_rows(const AddNormArguments& arguments, std::uint32_t threads, Stream& stream) {
  with_elements(arguments.type, [&](auto element) {
    launch("add_norm", add_norm_rows<decltype(element), Row>,
           {.grid = {arguments.rows}, .block = {threads}, .shared_bytes = kSumScratchBytes}, arguments,
           stream);
  });
}

bool norms_are_aligned(const AddNormArguments& a) {
  for (const RowNorm& norm : {a.post, a.post2, a.norm, a.norm2}) {
    if (!aligned_16(norm.weight) || !aligned_16(norm.bias)) return false;
  }
  return true;
}

}  // namespace

void add_norm(const AddNormArguments& arguments, Stream& stream) {
  const AddNormArguments& a = arguments;
  LOCI_CHECK(a.residual != nullptr && a.width > 0, "a residual");
  LOCI_CHECK(a.change != nullptr || a.change2 == nullptr, "the second change comes after the first");
  LOCI_CHECK(!a.norm.present() || !a.norm2.present() ||
                 (a.norm.kind == a.norm2.kind && a.norm.epsilon == a.norm2.epsilon),
             "two norms of one row are of one kind");
  const bool runs = a.width % kRun == 0 && aligned_16(a.residual) && aligned_16(a.change) &&
                    aligned_16(a.change2) && aligned_16(a.output) && aligned_16(a.output2) &&
                    aligned_16(a.output_floats) && norms_are_aligned(a);
  if (runs && a.width <= NarrowRow::kWidthMax) {
    // As many threads as there are runs, rounded up to whole warps.
    launch_rows<NarrowRow>(a, ceil_div(a.width, kRun * kWarp) * kWarp, stream);
  } else if (runs && a.width <= WideRow::kWidthMax) {
    launch_rows<WideRow>(a, WideRow::kThreadsMax, stream);
  } else {
    launch_rows<MemoryRow>(a, MemoryRow::kThreadsMax, stream);
  }
}

}  // namespace loci::cuda
