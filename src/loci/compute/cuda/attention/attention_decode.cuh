// SPDX-License-Identifier: Apache-2.0
// A decode tile: up to 16 pairs of one key/value head over a range of the context. The four warps share each
// step: a warp computes the scores of 16 keys, all warps see them through shared memory and make the same
// probabilities, and a warp sums the values of its own dimensions.
#pragma once

#include "loci/compute/cuda/attention/attention_tile.cuh"

namespace loci::cuda {

template <class T, int kHead>
class DecodeTile {
 public:
  using Shape = TileShape<kHead>;
  static constexpr int kWarps = kAttentionThreads / 32;
  static constexpr int kGroups = (kHead / 16 + kWarps - 1) / kWarps;  // of 16 dimensions, at most a warp's

  LOCI_DEVICE DecodeTile(const AttentionParams& p, const TaskView& view) : p_(p), view_(view) {}

  // `queries`: Shape::kDecodeBytes and the ring, in shared memory.
  LOCI_DEVICE void run(std::byte* queries) {
    scores_ = reinterpret_cast<float*>(queries + RowLayout<kHead>::bytes(kAttentionDecodePairs));
    load_queries<kHead>(p_, view_, queries, kAttentionDecodePairs);
    ContextReader<kHead> context(p_, view_, queries + Shape::kDecodeBytes);
    context.start(view_.first_step());
    reset();
    const std::uint32_t first_row = view_.position(p_, 0);
    const std::uint32_t low_of_last =
        TaskView::first_visible(p_, view_.position(p_, kAttentionDecodePairs - 1));
    for (std::uint32_t step = view_.first_step(); step < view_.end_step(); ++step) {
      const std::byte* keys = context.next(step);
      const std::uint32_t first = step * kAttentionTileKeys, end = first + kAttentionTileKeys;
      write_scores(queries, keys);
      __syncthreads();
      compute(keys + ContextReader<kHead>::kKeyBytes, first, end - 1 > first_row || first < low_of_last);
      if (view_.split_ends(p_, end)) end_split(first);
    }
    finish();
  }

 private:
  LOCI_DEVICE void reset() {
    state_.reset();
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) o_[n][0] = o_[n][1] = o_[n][2] = o_[n][3] = 0;
  }

  // Of this warp's 16 keys. Even and odd steps of dimensions are no chains of their own: prompt tiles add in
  // one.
  LOCI_DEVICE void write_scores(const std::byte* queries, const std::byte* keys) {
    const FragmentRows<kHead> rows;
    float s[2][4] = {};
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      std::uint32_t a[4], b[4];
      rows.load_query(a, queries, 0, k);
      rows.load_keys(b, keys, 16 * warp_id(), k);
      multiply_pair<T>(s[0], s[1], a, b);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *score(8 * half, 16 * warp_id() + 8 * n) = make_float2(s[n][2 * half], s[n][2 * half + 1]);
      }
    }
  }

  // This lane's two of row g + `row`, of the eight keys from `key` on.
  LOCI_DEVICE float2* score(std::uint32_t row, std::uint32_t key) const {
    return reinterpret_cast<float2*>(scores_ +
                                     ScoreLayout::index(row + lane_id() / 4, key + 2 * (lane_id() % 4)));
  }

  LOCI_DEVICE void compute(const std::byte* values, std::uint32_t first, bool masked) {
    const FragmentRows<kHead> rows;
    float s[8][4] = {};
    const bool both = view_.task.pairs > 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && !both) break;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 two = *score(8 * half, 8 * j);
        s[j][2 * half] = two.x;
        s[j][2 * half + 1] = two.y;
      }
    }
    if (p_.inner != 0) cap_scores(s, p_.inner);
    if (masked) {
      const std::uint32_t high[2] = {view_.position(p_, lane_id() / 4),
                                     view_.position(p_, lane_id() / 4 + 8)};
      const std::uint32_t low[2] = {TaskView::first_visible(p_, high[0]),
                                    TaskView::first_visible(p_, high[1])};
      mask_scores(s, first, low, high);
    }
    float factor[2] = {1, 1};
    softmax_half(s, 0, p_.multiplier, state_, factor[0]);
    if (both) softmax_half(s, 1, p_.multiplier, state_, factor[1]);
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[n][i] *= factor[i / 2];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t a[4];
      pack_probabilities<T>(a, s, k);
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        if (group(i) >= kHead / 16) break;
        std::uint32_t b[4];
        rows.load_values(b, values, 16 * k, group(i));
        multiply_pair<T>(o_[2 * i], o_[2 * i + 1], a, b);
      }
    }
  }

  // The warp's i-th group of 16 dimensions.
  LOCI_DEVICE int group(int i) const { return static_cast<int>(warp_id()) + kWarps * i; }
  LOCI_DEVICE std::uint32_t pair(int half) const { return 8 * half + lane_id() / 4; }
  // Calls visit(n, dimension) for each pair of sums that is one of the head's.
  template <class Visit>
  LOCI_DEVICE void each_dimension(const Visit& visit) const {
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) {
      const int dimension = 16 * group(n / 2) + 8 * (n % 2);
      if (dimension < static_cast<int>(p_.a.state.head_dim)) visit(n, dimension + 2 * (lane_id() % 4));
    }
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
    for (int half = 0; half < 2; ++half) {
      float maximum = state_.base(half, p_.multiplier), sum = state_.whole_sum(half);
      if (split > 0) fold(half, maximum, sum);
      const std::uint32_t mine = pair(half);
      if (mine >= view_.task.pairs) continue;
      const Normalise normalise(p_, view_.head(p_, mine), maximum, sum);
      T* out = static_cast<T*>(p_.a.output) + view_.at(p_, mine);
      each_dimension([&](int n, int dimension) {
        *reinterpret_cast<std::uint32_t*>(out + dimension) =
            pack2<T>(normalise(o_[n][2 * half]), normalise(o_[n][2 * half + 1]));
      });
    }
  }

  // Sums and statistics to the split's partial; `onto`: after folding what lies there into them.
  LOCI_DEVICE void store(std::uint32_t split, bool onto) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float maximum = state_.base(half, p_.multiplier), sum = state_.whole_sum(half);
      if (onto) fold(half, maximum, sum);
      before_[half] = make_float2(maximum, sum);
      const std::uint32_t mine = pair(half);
      if (mine >= view_.task.pairs) continue;
      if (warp_id() == 0 && lane_id() % 4 == 0) {
        *reinterpret_cast<float2*>(p_.a.partial_statistics + row(mine, split) * 2) = before_[half];
      }
      float* values = p_.a.partial_values + row(mine, split) * p_.a.state.head_dim;
      each_dimension([&](int n, int dimension) {
        *reinterpret_cast<float2*>(values + dimension) = make_float2(o_[n][2 * half], o_[n][2 * half + 1]);
      });
    }
  }

  // The splits before this one come first: their sums lie in the task's partial, each lane's its own.
  LOCI_DEVICE void fold(int half, float& maximum, float& sum) {
    float largest = before_[half].x, total = before_[half].y;
    const Fold both(largest, total, maximum, sum);
    maximum = largest;
    sum = total;
    if (pair(half) >= view_.task.pairs) return;
    const float* values = p_.a.partial_values + row(pair(half), 0) * p_.a.state.head_dim;
    each_dimension([&](int n, int dimension) {
      const float2 mine = *reinterpret_cast<const float2*>(values + dimension);
      o_[n][2 * half] = both.value(mine.x, o_[n][2 * half]);
      o_[n][2 * half + 1] = both.value(mine.y, o_[n][2 * half + 1]);
    });
  }

  LOCI_DEVICE std::size_t row(std::uint32_t pair, std::uint32_t split) const {
    return view_.partial_row(split) + pair;
  }

  const AttentionParams& p_;
  const TaskView& view_;
  float* scores_;
  float o_[2 * kGroups][4];
  SoftmaxState state_;
  float2 before_[2];  // of the splits before: maximum (base 2), sum
};

}  // namespace loci::cuda
