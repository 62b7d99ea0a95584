// SPDX-License-Identifier: Apache-2.0
// A prompt tile: up to 128 pairs of one key/value head over a range of the context, by four warps of 32 pairs
// each (64 and 16 where heads are above 128). Sums of values, scores and probabilities stay in registers;
// queries, keys and values are fragments from shared memory, each of keys and values used for both of a
// warp's row tiles.
#pragma once

#include "loci/compute/cuda/attention/attention_tile.cuh"

namespace loci::cuda {

template <class T, int kHead>
class PromptTile {
 public:
  using Shape = TileShape<kHead>;
  static constexpr int kRowTiles = Shape::kRowTiles;

  LOCI_DEVICE PromptTile(const AttentionParams& p, const TaskView& view)
      : p_(p), view_(view), first_pair_(warp_id() * Shape::kWarpPairs) {}

  LOCI_DEVICE void run() {
    auto* queries = shared_memory<std::byte>();
    load_queries<kHead>(p_, view_, queries, Shape::kPromptPairs);
    ContextReader<kHead> context(p_, view_, queries + Shape::kPromptBytes);
    context.start(view_.first_step());
    reset();
    // What some row of the warp sees, at least.
    const bool any = first_pair_ < view_.task.pairs;
    const std::uint32_t first_row = view_.position(p_, first_pair_);
    for (std::uint32_t step = view_.first_step(); step < view_.end_step(); ++step) {
      const std::byte* keys = context.next(step);
      const std::uint32_t first = step * kAttentionTileKeys, last = first + kAttentionTileKeys - 1;
      const std::uint32_t last_row = first_row + p_.warp_rows;
      if (any && first <= last_row && last >= TaskView::first_visible(p_, first_row)) {
        const bool masked = last > first_row || first < TaskView::first_visible(p_, last_row);
        compute(queries, keys, first, masked);
      }
      if (view_.split_ends(p_, last + 1)) end_split(first);
    }
    finish();
  }

 private:
  LOCI_DEVICE void reset() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      state_[r].reset();
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) o_[r][n][0] = o_[r][n][1] = o_[r][n][2] = o_[r][n][3] = 0;
    }
  }

  LOCI_DEVICE void compute(const std::byte* queries, const std::byte* keys, std::uint32_t first,
                           bool masked) {
    const FragmentRows<kHead> rows;
    float s[kRowTiles][8][4] = {};
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      std::uint32_t a[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) rows.load_query(a[r], queries, first_pair_ + 16 * r, k);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        std::uint32_t b[4];
        rows.load_keys(b, keys, 16 * n, k);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) multiply_pair<T>(s[r][2 * n], s[r][2 * n + 1], a[r], b);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      if (p_.inner != 0) cap_scores(s[r], p_.inner);
      if (masked) mask(s[r], first, r);
      float factor[2];
      softmax_half(s[r], 0, p_.multiplier, state_[r], factor[0]);
      softmax_half(s[r], 1, p_.multiplier, state_[r], factor[1]);
      // Multiplying by 1 changes nothing; after the first steps maxima seldom rise.
      if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) scale_values(r, factor);
    }
    add_values(s, keys + ContextReader<kHead>::kKeyBytes);
  }

  LOCI_DEVICE void mask(float (&s)[8][4], std::uint32_t first, int r) const {
    std::uint32_t low[2], high[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      high[half] = view_.position(p_, pair(r, half));
      low[half] = TaskView::first_visible(p_, high[half]);
    }
    mask_scores(s, first, low, high);
  }

  LOCI_DEVICE void scale_values(int r, const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[r][n][i] *= factor[i / 2];
    }
  }

  LOCI_DEVICE void add_values(const float (&s)[kRowTiles][8][4], const std::byte* values) {
    const FragmentRows<kHead> rows;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t a[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) pack_probabilities<T>(a[r], s[r], k);
#pragma unroll
      for (int d = 0; d < kHead / 16; ++d) {
        std::uint32_t b[4];
        rows.load_values(b, values, 16 * k, d);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) multiply_pair<T>(o_[r][2 * d], o_[r][2 * d + 1], a[r], b);
      }
    }
  }

  // Of the task: row g or g + 8 of a row tile.
  LOCI_DEVICE std::uint32_t pair(int r, int half) const {
    return first_pair_ + 16 * r + 8 * half + lane_id() / 4;
  }

  // The split's results go to their partial, or are folded into what the splits before them gave.
  LOCI_DEVICE void end_split(std::uint32_t position) {
    const std::uint32_t split = view_.split(p_, position);
    store(view_.whole() ? 0 : split, view_.whole() && split > 0);
    reset();
  }

  LOCI_DEVICE void finish() {
    const std::uint32_t split = view_.split(p_, view_.task.key_end - 1);
    if (!view_.whole()) return store(split, false);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float maximum = state_[r].base(half, p_.multiplier), sum = state_[r].whole_sum(half);
        const std::uint32_t mine = pair(r, half);
        if (mine >= view_.task.pairs) continue;
        if (split > 0) fold(r, half, maximum, sum);
        const Normalise normalise(p_, view_.head(p_, mine), maximum, sum);
        T* out = static_cast<T*>(p_.a.output) + view_.at(p_, mine) + 2 * (lane_id() % 4);
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          if (8 * n >= static_cast<int>(p_.a.state.head_dim)) break;
          *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
              pack2<T>(normalise(o_[r][n][2 * half]), normalise(o_[r][n][2 * half + 1]));
        }
      }
    }
  }

  // Sums and statistics to the split's partial; `onto`: after folding what lies there into them.
  LOCI_DEVICE void store(std::uint32_t split, bool onto) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float maximum = state_[r].base(half, p_.multiplier), sum = state_[r].whole_sum(half);
        const std::uint32_t mine = pair(r, half);
        if (onto && mine < view_.task.pairs) fold(r, half, maximum, sum);
        __syncwarp();  // all of a row's lanes have read its statistics
        if (mine >= view_.task.pairs) continue;
        float* statistics = p_.a.partial_statistics + row(mine, split) * 2;
        if (lane_id() % 4 == 0) *reinterpret_cast<float2*>(statistics) = make_float2(maximum, sum);
        float* values = p_.a.partial_values + row(mine, split) * p_.a.state.head_dim + 2 * (lane_id() % 4);
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          if (8 * n >= static_cast<int>(p_.a.state.head_dim)) break;
          *reinterpret_cast<float2*>(values + 8 * n) =
              make_float2(o_[r][n][2 * half], o_[r][n][2 * half + 1]);
        }
      }
    }
    __syncwarp();
  }

  // The splits before this one, which lie in the task's partial, come first.
  LOCI_DEVICE void fold(int r, int half, float& maximum, float& sum) {
    const std::size_t at = row(pair(r, half), 0);
    const float2 before = *reinterpret_cast<const float2*>(p_.a.partial_statistics + at * 2);
    const float* values = p_.a.partial_values + at * p_.a.state.head_dim + 2 * (lane_id() % 4);
    float largest = before.x, total = before.y;
    const Fold both(largest, total, maximum, sum);
    maximum = largest;
    sum = total;
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      if (8 * n >= static_cast<int>(p_.a.state.head_dim)) break;
      const float2 mine = *reinterpret_cast<const float2*>(values + 8 * n);
      o_[r][n][2 * half] = both.value(mine.x, o_[r][n][2 * half]);
      o_[r][n][2 * half + 1] = both.value(mine.y, o_[r][n][2 * half + 1]);
    }
  }

  LOCI_DEVICE std::size_t row(std::uint32_t pair, std::uint32_t split) const {
    return view_.partial_row(split) + pair;
  }

  const AttentionParams& p_;
  const TaskView& view_;
  const std::uint32_t first_pair_;  // of the warp's, in the task
  float o_[kRowTiles][kHead / 8][4];
  SoftmaxState state_[kRowTiles];
};

}  // namespace loci::cuda
