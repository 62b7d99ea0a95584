// SPDX-License-Identifier: Apache-2.0
// Prompt tiles on Hopper: up to 128 pairs of one key/value head over a range of the context, by three
// warpgroups. One copies steps of 128 keys and their values into a ring (attention_warpgroups_ring.cuh); two
// have 64 pairs each and multiply (FlashAttention-3, §3). A group's products of one step run while it makes
// probabilities of the next, and the two groups take turns, so that one multiplies while the other is busy
// with exponentials.
#pragma once

#include "loci/compute/cuda/attention/attention_warpgroups_ring.cuh"

namespace loci::cuda {

#if LOCI_WARPGROUPS

// softmax_half() of both rows. A scheduler has one warp of a group, so no other one fills the time between
// operations that need each other: maxima and sums are four chains for each row.
template <int kTiles>
LOCI_DEVICE void softmax_rows(float (&s)[kTiles][4], float multiplier, SoftmaxState& state,
                              float (&factor)[2]) {
  constexpr int kChains = 4;
  float largest[2][kChains], total[2][kChains], base[2];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float both = fmaxf(s[j][2 * half], s[j][2 * half + 1]);
      float& chain = largest[half][j % kChains];
      chain = j < kChains ? both : fmaxf(chain, both);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float(&m)[kChains] = largest[half];
    m[0] = fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3]));
    m[0] = fmaxf(m[0], __shfl_xor_sync(~0u, m[0], 1));
    m[0] = fmaxf(m[0], __shfl_xor_sync(~0u, m[0], 2));
    const float before = state.maximum[half];
    state.maximum[half] = fmaxf(before, m[0]);
    base[half] = state.maximum[half] == lowest() ? 0.0f : state.maximum[half] * multiplier;
    factor[half] = exp2_fast(before * multiplier - base[half]);
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float &one = s[j][2 * half], &two = s[j][2 * half + 1];
      one = exp2_fast(fmaf(one, multiplier, -base[half]));
      two = exp2_fast(fmaf(two, multiplier, -base[half]));
      float& chain = total[half][j % kChains];
      chain = j < kChains ? one + two : chain + (one + two);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float(&t)[kChains] = total[half];
    state.sum[half] = fmaf(state.sum[half], factor[half], (t[0] + t[1]) + (t[2] + t[3]));
  }
}

// A warpgroup with 64 pairs of a task.
template <class T, int kHead>
class PromptGroup {
 public:
  using Shape = AttendWarpgroupsShape<kHead>;
  static constexpr int kTiles = kHead / 8;                  // of eight dimensions
  static constexpr int kScoreTiles = kWarpgroupKeys / 8;    // of eight keys
  static constexpr std::uint32_t kPairs = kWarpgroupPairs;  // of the group

  LOCI_DEVICE PromptGroup(const AttentionParams& p, const PromptRing<kHead>& ring)
      : p_(p), ring_(ring), group_(GroupTeam::group()) {
    if (group_ == 1) arrive_at_barrier(GroupBarrier::kTurn, 2 * kWarpgroup);
  }
  // The first group takes the turn that the second one left.
  LOCI_DEVICE void end() const {
    if (group_ == 0) begin_turn();
  }

  // `place`, `parity`: of the task and its queries.
  LOCI_DEVICE void run(const TaskView& view, std::uint32_t place, std::uint32_t parity) {
    const PromptSteps steps(p_, view);
    const unsigned queries = shared_address(ring_.queries(place)) + group_ * (kPairs * 128);
    const Seen seen = seen_by_all(view, steps);
    state_.reset();
#pragma unroll
    for (int n = 0; n < kTiles; ++n) o_[n][0] = o_[n][1] = o_[n][2] = o_[n][3] = 0;
    float s[kScoreTiles][4] = {};
    float factor[2];
    await_arrivals(ring_.queries_here(place), parity);
    await_arrivals(ring_.keys_here(keys_.stage), keys_.parity);
    begin_turn();
    begin_products();
    multiply_keys(s, queries);
    commit_products();
    end_turn();
    wait_products<0>(s);
    arrive_warp(ring_.keys_used(keys_.stage));
    keys_.next();
    make_probabilities(s, view, steps, seen, 0, factor);
    pack(s);
    for (std::uint32_t step = 1; step < steps.count; ++step) {
      await_arrivals(ring_.keys_here(keys_.stage), keys_.parity);
      begin_turn();
      begin_products();
      multiply_keys(s, queries);
      commit_products();
      await_values(steps, step - 1);
      begin_products();
      multiply_values();
      commit_products();
      end_turn();
      wait_products<1>(s);
      arrive_warp(ring_.keys_used(keys_.stage));
      keys_.next();
      make_probabilities(s, view, steps, seen, step, factor);
      keep_behind(state_.sum[0] + state_.sum[1]);
      wait_products<0>(o_);
      arrive_warp(ring_.values_used(values_.stage));
      values_.next();
      scale_values(factor);
      pack(s);
    }
    await_values(steps, steps.count - 1);
    begin_products();
    multiply_values();
    commit_products();
    wait_products<0>(o_);
    arrive_warp(ring_.values_used(values_.stage));
    values_.next();
    finish(view);
  }

 private:
  // The groups take turns at issuing products.
  LOCI_DEVICE void begin_turn() const { meet_at_barrier(GroupBarrier::kTurn + group_, 2 * kWarpgroup); }
  LOCI_DEVICE void end_turn() const { arrive_at_barrier(GroupBarrier::kTurn + (1 - group_), 2 * kWarpgroup); }

  // s = queries * keys^T.
  LOCI_DEVICE void multiply_keys(float (&s)[kScoreTiles][4], unsigned queries) const {
    const unsigned keys = shared_address(ring_.keys(keys_.stage));
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      multiply_shared<T>(s, tile_of_rows(queries + k / 4 * (2 * kPairs * 128) + k % 4 * 32),
                         tile_of_rows(keys + k / 4 * (kWarpgroupKeys * 128) + k % 4 * 32), k > 0);
    }
  }
  // o += probabilities * values.
  LOCI_DEVICE void multiply_values() {
    const unsigned values = shared_address(ring_.values(values_.stage));
#pragma unroll
    for (int k = 0; k < kScoreTiles / 2; ++k) {
      multiply_registers<T>(o_, a_[k], tile_of_columns(values + k * (16 * 128), kWarpgroupKeys * 128));
    }
  }

  // The values of a step, of which those that no row sees become zeros. Both groups write them: whoever
  // comes second writes what is there already.
  LOCI_DEVICE void await_values(const PromptSteps& steps, std::uint32_t step) const {
    await_arrivals(ring_.values_here(values_.stage), values_.parity);
    const std::uint32_t first = steps.first + step * kWarpgroupKeys;
    if (first >= steps.begin && first + kWarpgroupKeys <= steps.end) return;
    const std::uint32_t key = GroupTeam::thread();
    if (first + key < steps.begin || first + key >= steps.end) {
#pragma unroll 1
      for (std::uint32_t chunk = 0; chunk < kHead / 8; ++chunk) {
        copy_async_16(ring_.values(values_.stage) + Shape::offset(kWarpgroupKeys, key, chunk), p_.a.queries,
                      false);
      }
    }
    copy_async_commit();
    copy_async_wait<0>();
    publish_shared();
    GroupTeam::meet();
  }

  // Positions that all of the group's rows see, and no part of another task.
  struct Seen {
    std::uint32_t from, to;
  };
  LOCI_DEVICE Seen seen_by_all(const TaskView& view, const PromptSteps& steps) const {
    const std::uint32_t first_row = view.position(p_, group_ * kPairs),
                        last_row = view.position(p_, group_ * kPairs + kPairs - 1);
    // Kept, not computed in each step: they are quotients.
    return {opaque(TaskView::first_visible(p_, last_row)), opaque(min(first_row, steps.end - 1))};
  }

  LOCI_DEVICE void make_probabilities(float (&s)[kScoreTiles][4], const TaskView& view,
                                      const PromptSteps& steps, const Seen& seen, std::uint32_t step,
                                      float (&factor)[2]) {
    if (p_.inner != 0) cap_scores(s, p_.inner);
    const std::uint32_t first = steps.first + step * kWarpgroupKeys;
    if (first < seen.from || first + kWarpgroupKeys - 1 > seen.to) {
      const std::uint32_t rows[2] = {view.position(p_, pair(0)), view.position(p_, pair(1))};
      const std::uint32_t low[2] = {TaskView::first_visible(p_, rows[0]),
                                    TaskView::first_visible(p_, rows[1])};
      const std::uint32_t high[2] = {min(rows[0], steps.end - 1), min(rows[1], steps.end - 1)};
      mask_scores(s, first, low, high);
    }
    softmax_rows(s, p_.multiplier, state_, factor);
  }

  LOCI_DEVICE void scale_values(const float (&factor)[2]) {
    // Multiplying by 1 changes nothing; after the first steps maxima seldom rise.
    if (!__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[n][i] *= factor[i / 2];
    }
  }

  // Probabilities as fragments of 16 keys.
  LOCI_DEVICE void pack(const float (&s)[kScoreTiles][4]) {
#pragma unroll
    for (int k = 0; k < kScoreTiles / 2; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a_[k][i] = pack2_fast<T>(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
      }
    }
  }

  // Of the task: row g or g + 8 of the warp's.
  LOCI_DEVICE std::uint32_t pair(int half) const {
    return group_ * kPairs + GroupTeam::warp() * 16 + 8 * half + lane_id() / 4;
  }

  LOCI_DEVICE void finish(const TaskView& view) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float maximum = state_.base(half, p_.multiplier), sum = state_.whole_sum(half);
      const std::uint32_t mine = pair(half);
      if (mine >= view.task.pairs) continue;
      const std::uint32_t column = 2 * (lane_id() % 4);
      if (view.whole()) {
        const Normalise normalise(p_, view.head(p_, mine), maximum, sum);
        T* out = static_cast<T*>(p_.a.output) + view.at(p_, mine) + column;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
              pack2_fast<T>(normalise(o_[n][2 * half]), normalise(o_[n][2 * half + 1]));
        }
      } else {
        const std::size_t row = view.partial_row(0) + mine;
        if (column == 0) {
          *reinterpret_cast<float2*>(p_.a.partial_statistics + row * 2) = make_float2(maximum, sum);
        }
        float* values = p_.a.partial_values + row * kHead + column;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          *reinterpret_cast<float2*>(values + 8 * n) = make_float2(o_[n][2 * half], o_[n][2 * half + 1]);
        }
      }
    }
  }

  const AttentionParams& p_;
  const PromptRing<kHead>& ring_;
  const std::uint32_t group_;  // 0 or 1
  // Of the step whose keys, or values, come next.
  RingPlace<Shape::kKeyStages> keys_;
  RingPlace<Shape::kValueStages> values_;
  float o_[kTiles][4];
  std::uint32_t a_[kScoreTiles / 2][4];  // probabilities
  SoftmaxState state_;
};

// A warpgroup that multiplies: its part of all tasks of the block.
template <class T, int kHead>
LOCI_DEVICE void multiply_tasks(const AttendWarpgroupsParams& all, const PromptRing<kHead>& ring) {
  PromptGroup<T, kHead> prompt(all.p, ring);
  // Few registers are left: one counts tasks, and says where they are.
  for (std::uint32_t count = 0;; ++count) {
    const std::uint32_t place = count % 2, parity = count / 2 % 2;
    await_arrivals(ring.task_here(place), parity);
    const TaskView view(ring.task(place).task, ring.task(place).run);
    if (view.task.pairs == 0) break;
    prompt.run(view, place, parity);
    arrive_warp(ring.task_used(count % 2));
  }
  prompt.end();
}
#endif  // LOCI_WARPGROUPS

template <class T, int kHead>
__global__ void __launch_bounds__(kAttendWarpgroupsThreads, 1)
    attend_warpgroups(const __grid_constant__ AttendWarpgroupsParams all) {
#if LOCI_WARPGROUPS
  release_next();
  // Descriptors are there before the pass's first kernel.
  if (blockIdx.x >= all.p.a.counts->warpgroup_tasks) return await_previous();
  const PromptRing<kHead> ring(shared_memory<std::byte>());
  ContextCopier<kHead> copier(all, ring);
  if (threadIdx.x == 0) {
    prefetch_map(all.map);
    ring.begin_all();
  }
  __syncthreads();
  await_previous();
  if (threadIdx.x < kWarpgroup) {
    give_registers<56>();
    if (warp_id() == 0) {
      copier.run();
    } else {
      QueryCopier<kHead>(all.p, ring).run();
    }
  } else {
    take_registers<224>();
    multiply_tasks<T, kHead>(all, ring);
  }
#endif
}

}  // namespace loci::cuda
