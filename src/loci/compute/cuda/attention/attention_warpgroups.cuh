// SPDX-License-Identifier: Apache-2.0
// Prompt tiles on Hopper: up to 128 pairs of one key/value head over a range of the context, by three
// warpgroups. One has its first thread copy steps of 128 keys and their values, by the copy engine, into a
// ring; two have 64 pairs each and multiply (FlashAttention-3, §3). A group's products of one step run while
// it makes probabilities of the next, and the two groups take turns, so that one multiplies while the other
// is busy with exponentials.
//
// The same kernel has decode tiles: two at a time, one for each of the two groups (attention_plan.h puts them
// side by side in the list).
#pragma once

#include "loci/compute/cuda/attention/attention_decode.cuh"
#include "loci/compute/cuda/attention/attention_tile.cuh"
#include "loci/compute/cuda/attention/attention_warpgroups.h"
#include "loci/compute/cuda/simt_warpgroup.h"

namespace loci::cuda {

struct WarpgroupParams {
  TileMap map;  // of the layer's state: x dimensions of a head, y keys of all heads and then values, z slots
  AttentionParams p;
};

#if LOCI_WARPGROUPS

// The warpgroup of a decode tile, or half of a prompt tile.
struct GroupTeam {
  LOCI_DEVICE static std::uint32_t group() { return threadIdx.x / kWarpgroup - 1; }
  LOCI_DEVICE static std::uint32_t thread() { return threadIdx.x % kWarpgroup; }
  LOCI_DEVICE static std::uint32_t warp() { return warp_id() % 4; }
  LOCI_DEVICE static void meet() { meet_at_barrier(1 + group(), kWarpgroup); }
};

// What a prompt tile has in shared memory.
template <int kHead>
struct PromptRing {
  using Shape = WarpgroupShape<kHead>;
  std::byte* begin;  // a multiple of 1024
  Arrivals* arrivals;

  LOCI_DEVICE explicit PromptRing(std::byte* shared)
      : begin(shared + (1024 - shared_address(shared) % 1024) % 1024),
        arrivals(
            reinterpret_cast<Arrivals*>(begin + Shape::kQueryBytes + Shape::kStages * Shape::kStageBytes)) {}
  LOCI_DEVICE std::byte* keys(std::uint32_t stage) const {
    return begin + Shape::kQueryBytes + stage * Shape::kStageBytes;
  }
  LOCI_DEVICE std::byte* values(std::uint32_t stage) const { return keys(stage) + Shape::kStageBytes / 2; }
  LOCI_DEVICE Arrivals* keys_here(std::uint32_t stage) const { return arrivals + stage; }
  LOCI_DEVICE Arrivals* values_here(std::uint32_t stage) const { return arrivals + Shape::kStages + stage; }
  LOCI_DEVICE Arrivals* keys_used(std::uint32_t stage) const { return arrivals + 2 * Shape::kStages + stage; }
  LOCI_DEVICE Arrivals* values_used(std::uint32_t stage) const {
    return arrivals + 3 * Shape::kStages + stage;
  }
  LOCI_DEVICE void begin_all() const {
    for (std::uint32_t stage = 0; stage < Shape::kStages; ++stage) {
      begin_arrivals(keys_here(stage), 1);
      begin_arrivals(values_here(stage), 1);
      begin_arrivals(keys_used(stage), 8);  // a thread of each warp that multiplies
      begin_arrivals(values_used(stage), 8);
    }
    publish_arrivals();
  }
};

// The steps of a task: of 128 positions, from the first one that it reads.
struct PromptSteps {
  std::uint32_t first;       // position
  std::uint32_t begin, end;  // positions that some row sees: others become zeros
  std::uint32_t count;

  LOCI_DEVICE PromptSteps(const AttentionParams& p, const TaskView& view)
      : first(view.task.key_begin),
        begin(max(view.task.key_begin, TaskView::first_visible(p, view.position(p, 0)))),
        end(view.task.key_end),
        count((end - first + kWarpgroupKeys - 1) / kWarpgroupKeys) {}
};

// Where a step is in the ring.
template <std::uint32_t kStages>
struct RingPlace {
  std::uint32_t stage = 0, parity = 0;
  LOCI_DEVICE void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// One thread: copies all steps of a task.
template <int kHead>
LOCI_DEVICE void copy_context(const WarpgroupParams& all, const TaskView& view,
                              const PromptRing<kHead>& ring) {
  using Shape = WarpgroupShape<kHead>;
  constexpr std::uint32_t kBlocks = kWarpgroupKeys / 32;
  const AttentionParams& p = all.p;
  const PromptSteps steps(p, view);
  const std::uint32_t* table = p.a.tables + view.run.table + steps.first / 32;
  const int keys_row = static_cast<int>(view.task.kv_head * 32);
  const int values_row = static_cast<int>((p.a.state.kv_heads + view.task.kv_head) * 32);
  int slots[kBlocks];
  // Blocks that no row sees may have no slot: below zero, they are outside of the map.
  const auto find = [&](std::uint32_t step) {
#pragma unroll
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      const std::uint32_t position = steps.first + step * kWarpgroupKeys + 32 * i;
      const bool seen = position + 32 > steps.begin && position < steps.end;
      slots[i] = seen ? static_cast<int>(__ldg(table + step * kBlocks + i)) : -1;
    }
  };
  const auto copy = [&](std::byte* to, int row, Arrivals* arrivals) {
    arrive_expecting(arrivals, Shape::kStageBytes / 2);
#pragma unroll
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < kHead / 64; ++half) {
        copy_tile_async(to + half * (kWarpgroupKeys * 128) + i * (32 * 128), all.map, half * 64, row,
                        slots[i], arrivals);
      }
    }
  };
  find(0);
  RingPlace<Shape::kStages> at;
  for (std::uint32_t step = 0; step < steps.count; ++step, at.next()) {
    await_arrivals(ring.keys_used(at.stage), at.parity ^ 1);
    copy(ring.keys(at.stage), keys_row, ring.keys_here(at.stage));
    await_arrivals(ring.values_used(at.stage), at.parity ^ 1);
    copy(ring.values(at.stage), values_row, ring.values_here(at.stage));
    if (step + 1 < steps.count) find(step + 1);
  }
}

// A warpgroup with 64 pairs of a task.
template <class T, int kHead>
class PromptGroup {
 public:
  using Shape = WarpgroupShape<kHead>;
  static constexpr int kTiles = kHead / 8;                  // of eight dimensions
  static constexpr int kScoreTiles = kWarpgroupKeys / 8;    // of eight keys
  static constexpr std::uint32_t kPairs = kWarpgroupPairs;  // of the group
  static constexpr std::uint32_t kTurn = 3;                 // number of the first group's barrier

  LOCI_DEVICE PromptGroup(const AttentionParams& p, const TaskView& view, const PromptRing<kHead>& ring)
      : p_(p), view_(view), ring_(ring), steps_(p, view), group_(GroupTeam::group()) {}

  LOCI_DEVICE void run() {
    load_queries();
    state_.reset();
#pragma unroll
    for (int n = 0; n < kTiles; ++n) o_[n][0] = o_[n][1] = o_[n][2] = o_[n][3] = 0;
    if (group_ == 1) arrive_at_barrier(kTurn, 2 * kWarpgroup);
    RingPlace<Shape::kStages> now, before;
    float s[kScoreTiles][4] = {};
    float factor[2];
    await_arrivals(ring_.keys_here(0), 0);
    begin_turn();
    begin_products();
    multiply_keys(s, 0);
    commit_products();
    end_turn(steps_.count == 1);
    wait_products<0>(s);
    leave(ring_.keys_used(0));
    make_probabilities(s, 0, factor);
    pack(s);
    for (std::uint32_t step = 1; step < steps_.count; ++step) {
      now.next();
      await_arrivals(ring_.keys_here(now.stage), now.parity);
      begin_turn();
      begin_products();
      multiply_keys(s, now.stage);
      commit_products();
      await_values(before, step - 1);
      begin_products();
      multiply_values(before.stage);
      commit_products();
      end_turn(step + 1 == steps_.count);
      wait_products<1>(s);
      leave(ring_.keys_used(now.stage));
      make_probabilities(s, step, factor);
      wait_products<0>(o_);
      leave(ring_.values_used(before.stage));
      before.next();
      scale_values(factor);
      pack(s);
    }
    await_values(before, steps_.count - 1);
    begin_products();
    multiply_values(before.stage);
    commit_products();
    wait_products<0>(o_);
    finish();
  }

 private:
  // Of the group's pairs; zeros beyond the task's.
  LOCI_DEVICE void load_queries() {
    constexpr std::uint32_t kChunks = kHead / 8;
#pragma unroll
    for (std::uint32_t i = 0; i < kPairs * kChunks / kWarpgroup; ++i) {
      const std::uint32_t piece = GroupTeam::thread() + i * kWarpgroup;
      const std::uint32_t row = group_ * kPairs + piece / kChunks, chunk = piece % kChunks;
      const bool valid = row < view_.task.pairs;
      const std::byte* from = static_cast<const std::byte*>(p_.a.queries);
      if (valid) from += (view_.at(p_, row) + chunk * 8) * 2;
      copy_async_16(ring_.begin + Shape::offset(2 * kPairs, row, chunk), from, valid);
    }
    copy_async_commit();
    copy_async_wait<0>();
    publish_shared();
    GroupTeam::meet();
  }

  // The groups take turns at issuing products.
  LOCI_DEVICE void begin_turn() const { meet_at_barrier(kTurn + group_, 2 * kWarpgroup); }
  // The first group's last turn is the end of theirs.
  LOCI_DEVICE void end_turn(bool last) const {
    if (group_ == 0 || !last) arrive_at_barrier(kTurn + (1 - group_), 2 * kWarpgroup);
  }
  // The warp is done with what lies there.
  LOCI_DEVICE static void leave(Arrivals* arrivals) {
    if (lane_id() == 0) arrive(arrivals);
  }

  // s = queries * keys^T.
  LOCI_DEVICE void multiply_keys(float (&s)[kScoreTiles][4], std::uint32_t stage) const {
    const unsigned queries = shared_address(ring_.begin) + group_ * (kPairs * 128);
    const unsigned keys = shared_address(ring_.keys(stage));
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      multiply_shared<T>(s, tile_of_rows(queries + k / 4 * (2 * kPairs * 128) + k % 4 * 32),
                         tile_of_rows(keys + k / 4 * (kWarpgroupKeys * 128) + k % 4 * 32), k > 0);
    }
  }
  // o += probabilities * values.
  LOCI_DEVICE void multiply_values(std::uint32_t stage) {
    const unsigned values = shared_address(ring_.values(stage));
#pragma unroll
    for (int k = 0; k < kScoreTiles / 2; ++k) {
      multiply_registers<T>(o_, a_[k], tile_of_columns(values + k * (16 * 128), kWarpgroupKeys * 128));
    }
  }

  // The values of a step, of which those that no row sees become zeros. Both groups write them: whoever
  // comes second writes what is there already.
  LOCI_DEVICE void await_values(const RingPlace<Shape::kStages>& at, std::uint32_t step) const {
    await_arrivals(ring_.values_here(at.stage), at.parity);
    const std::uint32_t first = steps_.first + step * kWarpgroupKeys;
    if (first >= steps_.begin && first + kWarpgroupKeys <= steps_.end) return;
    const std::uint32_t key = GroupTeam::thread();
    if (first + key < steps_.begin || first + key >= steps_.end) {
#pragma unroll 1
      for (std::uint32_t chunk = 0; chunk < kHead / 8; ++chunk) {
        copy_async_16(ring_.values(at.stage) + Shape::offset(kWarpgroupKeys, key, chunk), p_.a.queries,
                      false);
      }
    }
    copy_async_commit();
    copy_async_wait<0>();
    publish_shared();
    GroupTeam::meet();
  }

  LOCI_DEVICE void make_probabilities(float (&s)[kScoreTiles][4], std::uint32_t step, float (&factor)[2]) {
    if (p_.inner != 0) cap_scores(s, p_.inner);
    const std::uint32_t first = steps_.first + step * kWarpgroupKeys;
    const std::uint32_t first_row = view_.position(p_, group_ * kPairs),
                        last_row = view_.position(p_, group_ * kPairs + kPairs - 1);
    if (first + kWarpgroupKeys - 1 > first_row || first + kWarpgroupKeys > steps_.end ||
        first < TaskView::first_visible(p_, last_row)) {
      const std::uint32_t high[2] = {view_.position(p_, pair(0)), view_.position(p_, pair(1))};
      // Positions beyond the task's are another task's.
      const std::uint32_t low[2] = {TaskView::first_visible(p_, high[0]),
                                    TaskView::first_visible(p_, high[1])};
      const std::uint32_t to[2] = {min(high[0], steps_.end - 1), min(high[1], steps_.end - 1)};
      mask_scores(s, first, low, to);
    }
    softmax_half(s, 0, p_.multiplier, state_, factor[0]);
    softmax_half(s, 1, p_.multiplier, state_, factor[1]);
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

  LOCI_DEVICE void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float maximum = state_.base(half, p_.multiplier), sum = state_.whole_sum(half);
      const std::uint32_t mine = pair(half);
      if (mine >= view_.task.pairs) continue;
      const std::uint32_t column = 2 * (lane_id() % 4);
      if (view_.whole()) {
        const Normalise normalise(p_, view_.head(p_, mine), maximum, sum);
        T* out = static_cast<T*>(p_.a.output) + view_.at(p_, mine) + column;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
              pack2_fast<T>(normalise(o_[n][2 * half]), normalise(o_[n][2 * half + 1]));
        }
      } else {
        const std::size_t row = view_.partial_row(0) + mine;
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
  const TaskView& view_;
  const PromptRing<kHead>& ring_;
  const PromptSteps steps_;
  const std::uint32_t group_;  // 0 or 1
  float o_[kTiles][4];
  std::uint32_t a_[kScoreTiles / 2][4];  // probabilities
  SoftmaxState state_;
};

#endif  // LOCI_WARPGROUPS

template <class T, int kHead>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    attend_warpgroups(const __grid_constant__ WarpgroupParams all) {
#if LOCI_WARPGROUPS
  const AttentionParams& p = all.p;
  release_next();
  // Descriptors are there before the pass's first kernel.
  if (blockIdx.x >= p.a.counts[0]) return await_previous();
  const std::uint32_t flags = p.a.tasks[blockIdx.x].flags;
  if ((flags & AttentionTask::kSecond) != 0) return await_previous();
  auto* shared = shared_memory<std::byte>();
  if ((flags & AttentionTask::kPromptTile) != 0) {
    const TaskView view(p, blockIdx.x);
    const PromptRing<kHead> ring(shared);
    if (threadIdx.x == 0) ring.begin_all();
    __syncthreads();
    await_previous();
    if (threadIdx.x < kWarpgroup) {
      give_registers<24>();
      if (threadIdx.x == 0) copy_context<kHead>(all, view, ring);
    } else {
      take_registers<240>();
      PromptGroup<T, kHead>(p, view, ring).run();
    }
  } else {
    await_previous();
    if (threadIdx.x < kWarpgroup) return;
    const std::uint32_t group = GroupTeam::group();
    if (group == 1 && (flags & AttentionTask::kFirst) == 0) return;
    const TaskView view(p, blockIdx.x + group);
    using Shape = WarpgroupShape<kHead>;
    DecodeTile<T, kHead, GroupTeam>(p, view).run(shared + group * Shape::kDecodeBytes);
  }
#endif
}

}  // namespace loci::cuda
