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
  bool turns = true;
};

#if LOCI_WARPGROUPS

inline constexpr std::uint32_t kDecodeBarrier = 5;

// The warpgroup of a decode tile, or half of a prompt tile.
struct GroupTeam {
  LOCI_DEVICE static std::uint32_t group() { return threadIdx.x / kWarpgroup - 1; }
  LOCI_DEVICE static std::uint32_t thread() { return threadIdx.x % kWarpgroup; }
  LOCI_DEVICE static std::uint32_t warp() { return warp_id() % 4; }
  LOCI_DEVICE static void meet() { meet_at_barrier(1 + group(), kWarpgroup); }
};

// What a thread block has in shared memory.
template <int kHead>
struct PromptRing {
  using Shape = WarpgroupShape<kHead>;
  static constexpr std::uint32_t kKeyStages = Shape::kKeyStages, kValueStages = Shape::kValueStages;
  static constexpr std::uint32_t kStages = kKeyStages + kValueStages;
  // A task on its way to those who work on it. No pairs: there are no more.
  struct Next {
    AttentionTask task;
    AttentionRun run;
    std::uint32_t index;
  };
  std::byte* begin;  // a multiple of 1024
  Next* tasks;       // [2]
  Arrivals* arrivals;

  LOCI_DEVICE explicit PromptRing(std::byte* shared)
      : begin(shared + (1024 - shared_address(shared) % 1024) % 1024),
        tasks(reinterpret_cast<Next*>(begin + Shape::kTileBytes)),
        arrivals(reinterpret_cast<Arrivals*>(begin + Shape::kTileBytes + 112)) {
    static_assert(2 * sizeof(Next) <= 112 && 112 + (2 * kStages + 6) * sizeof(Arrivals) <= 320);
  }
  LOCI_DEVICE std::byte* queries(std::uint32_t place) const { return begin + place * Shape::kQueryBytes; }
  LOCI_DEVICE std::byte* keys(std::uint32_t stage) const {
    return begin + 2 * Shape::kQueryBytes + stage * Shape::kStepBytes;
  }
  LOCI_DEVICE std::byte* values(std::uint32_t stage) const { return keys(kKeyStages + stage); }
  LOCI_DEVICE Arrivals* keys_here(std::uint32_t stage) const { return arrivals + stage; }
  LOCI_DEVICE Arrivals* values_here(std::uint32_t stage) const { return arrivals + kKeyStages + stage; }
  LOCI_DEVICE Arrivals* keys_used(std::uint32_t stage) const { return arrivals + kStages + stage; }
  LOCI_DEVICE Arrivals* values_used(std::uint32_t stage) const {
    return arrivals + kStages + kKeyStages + stage;
  }
  LOCI_DEVICE Arrivals* task_here(std::uint32_t place) const { return arrivals + 2 * kStages + place; }
  LOCI_DEVICE Arrivals* queries_here(std::uint32_t place) const { return arrivals + 2 * kStages + 2 + place; }
  LOCI_DEVICE Arrivals* task_used(std::uint32_t place) const { return arrivals + 2 * kStages + 4 + place; }
  LOCI_DEVICE void begin_all() const {
    for (std::uint32_t stage = 0; stage < kStages; ++stage) {
      begin_arrivals(keys_here(stage), 1);  // of values too
      begin_arrivals(keys_used(stage), kMultiplyWarps);
    }
    for (std::uint32_t place = 0; place < 2; ++place) {
      begin_arrivals(task_here(place), 1);
      begin_arrivals(queries_here(place), kQueryWarps);
      begin_arrivals(task_used(place), kMultiplyWarps + kQueryWarps);
    }
    publish_arrivals();
  }

  static constexpr std::uint32_t kMultiplyWarps = 8;
  static constexpr std::uint32_t kQueryWarps = 3;  // of the warpgroup that copies, all but the first
};

// A warp arrives.
LOCI_DEVICE void arrive_warp(Arrivals* arrivals) {
  if (lane_id() == 0) arrive(arrivals);
}

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

// A warp: finds the block's tasks, one after the other, and copies the keys and values of prompts. It is
// ahead of those who work on them by what the ring holds, also from task to task.
template <int kHead>
class ContextCopier {
 public:
  using Shape = WarpgroupShape<kHead>;

  // Reads the block's first task: before await_previous().
  LOCI_DEVICE ContextCopier(const WarpgroupParams& all, const PromptRing<kHead>& ring)
      : all_(all), ring_(ring), count_(all.p.a.counts[0]), index_(blockIdx.x), view_(all.p, blockIdx.x) {}

  LOCI_DEVICE void run() {
    RingPlace<2> place;
    for (;; place.next()) {
      while (index_ < count_ && (view_.task.flags & AttentionTask::kSecond) != 0) {
        index_ = following();
        read();
      }
      await_arrivals(ring_.task_used(place.stage), place.parity ^ 1);
      if (index_ >= count_) break;
      if (lane_id() == 0) {
        ring_.tasks[place.stage] = {view_.task, view_.run, index_};
        arrive(ring_.task_here(place.stage));
      }
      index_ = following();
      if ((view_.task.flags & AttentionTask::kPromptTile) != 0) {
        copy();
      } else {
        // Decode tiles lie where the ring does.
        await_arrivals(ring_.task_used(place.stage), place.parity);
      }
      read();
    }
    if (lane_id() == 0) {
      ring_.tasks[place.stage].task.pairs = 0;
      arrive(ring_.task_here(place.stage));
      leave();
    }
  }

 private:
  static constexpr std::uint32_t kBlocks = kWarpgroupKeys / 32;

  // Whichever block is free takes the longest task that is left.
  LOCI_DEVICE std::uint32_t blocks() const { return min(gridDim.x, count_); }
  LOCI_DEVICE std::uint32_t following() const {
    std::uint32_t taken = 0;
    if (lane_id() == 0) taken = atomicAdd(all_.p.a.counts + 2, 1u);
    return blocks() + __shfl_sync(~0u, taken, 0);
  }
  LOCI_DEVICE void read() {
    if (index_ < count_) view_ = TaskView(all_.p, index_);
  }
  // The last block leaves the counters as they were.
  LOCI_DEVICE void leave() const {
    if (atomicAdd(all_.p.a.counts + 3, 1u) + 1 < blocks()) return;
    all_.p.a.counts[2] = 0;
    all_.p.a.counts[3] = 0;
  }

  LOCI_DEVICE void copy() {
    const PromptSteps steps(all_.p, view_);
    const std::uint32_t* table = all_.p.a.tables + view_.run.table + steps.first / 32;
    const int keys_row = static_cast<int>(view_.task.kv_head * 32);
    const int values_row = static_cast<int>((all_.p.a.state.kv_heads + view_.task.kv_head) * 32);
    int slots[kBlocks], next[kBlocks];
    spread(slot_of(table, steps, 0), slots);
    int ahead = slot_of(table, steps, 1);  // read a step before it is used
    copy_keys(slots, keys_row);
    // The keys of a step are wanted before the values of the one before it.
    for (std::uint32_t step = 0; step < steps.count; ++step) {
      if (step + 1 < steps.count) {
        spread(ahead, next);
        ahead = slot_of(table, steps, step + 2);
        copy_keys(next, keys_row);
      }
      await_arrivals(ring_.values_used(values_.stage), values_.parity ^ 1);
      copy(slots, ring_.values(values_.stage), values_row, ring_.values_here(values_.stage));
      values_.next();
#pragma unroll
      for (std::uint32_t i = 0; i < kBlocks; ++i) slots[i] = next[i];
    }
  }
  LOCI_DEVICE void copy_keys(const int (&slots)[kBlocks], int row) {
    await_arrivals(ring_.keys_used(keys_.stage), keys_.parity ^ 1);
    copy(slots, ring_.keys(keys_.stage), row, ring_.keys_here(keys_.stage));
    keys_.next();
  }

  // Of a step, in lanes 0 to 3. Blocks that no row sees may have no slot: below zero, they are outside of the
  // map.
  LOCI_DEVICE static int slot_of(const std::uint32_t* table, const PromptSteps& steps, std::uint32_t step) {
    const std::uint32_t block = step * kBlocks + lane_id() % kBlocks, position = steps.first + 32 * block;
    const bool seen = position + 32 > steps.begin && position < steps.end;
    return seen ? static_cast<int>(__ldg(table + block)) : -1;
  }
  LOCI_DEVICE static void spread(int slot, int (&slots)[kBlocks]) {
#pragma unroll
    for (std::uint32_t i = 0; i < kBlocks; ++i) slots[i] = __shfl_sync(~0u, slot, static_cast<int>(i));
  }

  LOCI_DEVICE void copy(const int (&slots)[kBlocks], std::byte* to, int row, Arrivals* arrivals) const {
    if (!elected()) return;
    arrive_expecting(arrivals, Shape::kStepBytes);
#pragma unroll
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < kHead / 64; ++half) {
        copy_tile_async(to + half * (kWarpgroupKeys * 128) + i * (32 * 128), all_.map, half * 64, row,
                        slots[i], arrivals);
      }
    }
  }

  const WarpgroupParams& all_;
  const PromptRing<kHead>& ring_;
  const std::uint32_t count_;
  std::uint32_t index_;  // of the next task
  TaskView view_;        // and what it is
  RingPlace<Shape::kKeyStages> keys_;
  RingPlace<Shape::kValueStages> values_;
};

// The other warps of that warpgroup copy the queries of prompts, up to one task ahead. Zeros beyond a task's
// pairs.
template <int kHead>
class QueryCopier {
 public:
  using Shape = WarpgroupShape<kHead>;

  LOCI_DEVICE QueryCopier(const AttentionParams& p, const PromptRing<kHead>& ring) : p_(p), ring_(ring) {}

  LOCI_DEVICE void run() const {
    for (RingPlace<2> place;; place.next()) {
      await_arrivals(ring_.task_here(place.stage), place.parity);
      const TaskView view(ring_.tasks[place.stage].task, ring_.tasks[place.stage].run);
      if (view.task.pairs == 0) return;
      if ((view.task.flags & AttentionTask::kPromptTile) != 0) {
        copy(view, ring_.queries(place.stage));
        publish_shared();
        __syncwarp();
        arrive_warp(ring_.queries_here(place.stage));
      }
      arrive_warp(ring_.task_used(place.stage));
    }
  }

 private:
  static constexpr std::uint32_t kChunks = kHead / 8, kRows = 2 * kWarpgroupPairs;
  static constexpr std::uint32_t kAtATime = 32 * PromptRing<kHead>::kQueryWarps / kChunks;  // rows

  // From pair to pair by addition: quotients take longer than the copies.
  LOCI_DEVICE void copy(const TaskView& view, std::byte* to) const {
    const std::uint32_t thread = threadIdx.x - 32, chunk = thread % kChunks, ratio = p_.ratio;
    const std::uint32_t rows = kAtATime / ratio, heads = kAtATime % ratio;
    const std::size_t step = (std::size_t{rows} * p_.a.heads + heads) * (kHead * 2);
    const std::size_t next_row = std::size_t{p_.a.heads - ratio} * (kHead * 2);
    const std::uint32_t first = thread / kChunks;
    std::uint32_t head = (view.task.first_pair + first) % ratio;
    const auto* queries = static_cast<const std::byte*>(p_.a.queries);
    const std::byte* from = queries + (view.at(p_, first) + chunk * 8) * 2;
#pragma unroll 4
    for (std::uint32_t row = first; row < kRows; row += kAtATime) {
      const bool valid = row < view.task.pairs;
      copy_async_16(to + Shape::offset(kRows, row, chunk), valid ? from : queries, valid);
      from += step;
      head += heads;
      if (head >= ratio) {
        head -= ratio;
        from += next_row;
      }
    }
    copy_async_commit();
    copy_async_wait<0>();
  }

  const AttentionParams& p_;
  const PromptRing<kHead>& ring_;
};

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
  using Shape = WarpgroupShape<kHead>;
  static constexpr int kTiles = kHead / 8;                  // of eight dimensions
  static constexpr int kScoreTiles = kWarpgroupKeys / 8;    // of eight keys
  static constexpr std::uint32_t kPairs = kWarpgroupPairs;  // of the group
  static constexpr std::uint32_t kTurn = 3;                 // number of the first group's barrier

  LOCI_DEVICE PromptGroup(const AttentionParams& p, const PromptRing<kHead>& ring, bool turns)
      : p_(p), ring_(ring), group_(GroupTeam::group()), turns_(turns) {
    if (turns_ && group_ == 1) arrive_at_barrier(kTurn, 2 * kWarpgroup);
  }
  // The first group takes the turn that the second one left.
  LOCI_DEVICE void end() const {
    if (turns_ && group_ == 0) begin_turn();
  }

  // `place`: of the task and its queries.
  LOCI_DEVICE void run(const TaskView& view, std::uint32_t place, std::uint32_t queries_parity) {
    const PromptSteps steps(p_, view);
    const unsigned queries = shared_address(ring_.queries(place)) + group_ * (kPairs * 128);
    const Seen seen = seen_by_all(view, steps);
    state_.reset();
#pragma unroll
    for (int n = 0; n < kTiles; ++n) o_[n][0] = o_[n][1] = o_[n][2] = o_[n][3] = 0;
    float s[kScoreTiles][4] = {};
    float factor[2];
    await_arrivals(ring_.queries_here(place), queries_parity);
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
  LOCI_DEVICE void begin_turn() const {
    if (turns_) meet_at_barrier(kTurn + group_, 2 * kWarpgroup);
  }
  LOCI_DEVICE void end_turn() const {
    if (turns_) arrive_at_barrier(kTurn + (1 - group_), 2 * kWarpgroup);
  }

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
  const bool turns_;
  // Of the step whose keys, or values, come next.
  RingPlace<Shape::kKeyStages> keys_;
  RingPlace<Shape::kValueStages> values_;
  float o_[kTiles][4];
  std::uint32_t a_[kScoreTiles / 2][4];  // probabilities
  SoftmaxState state_;
};

#endif  // LOCI_WARPGROUPS

#if LOCI_WARPGROUPS
// A warpgroup that multiplies: its part of all tasks of the block.
template <class T, int kHead>
LOCI_DEVICE void multiply_tasks(const WarpgroupParams& all, const PromptRing<kHead>& ring) {
  const AttentionParams& p = all.p;
  const std::uint32_t group = GroupTeam::group();
  PromptGroup<T, kHead> prompt(p, ring, all.turns);
  std::uint32_t queries_parity = 0;  // a bit for each place
  for (RingPlace<2> place;; place.next()) {
    await_arrivals(ring.task_here(place.stage), place.parity);
    const TaskView view(ring.tasks[place.stage].task, ring.tasks[place.stage].run);
    if (view.task.pairs == 0) break;
    if ((view.task.flags & AttentionTask::kPromptTile) != 0) {
      prompt.run(view, place.stage, queries_parity >> place.stage & 1);
      queries_parity ^= 1u << place.stage;
    } else {
      // Two decode tiles lie where the ring does: both groups are done with it before, and with them after.
      meet_at_barrier(kDecodeBarrier, 2 * kWarpgroup);
      const std::uint32_t index = ring.tasks[place.stage].index;
      if (group == 0 || (view.task.flags & AttentionTask::kFirst) != 0) {
        const TaskView mine(p, index + group);
        DecodeTile<T, kHead, GroupTeam>(p, mine).run(ring.begin +
                                                     group * WarpgroupShape<kHead>::kDecodeBytes);
      }
      publish_shared();
      meet_at_barrier(kDecodeBarrier, 2 * kWarpgroup);
    }
    arrive_warp(ring.task_used(place.stage));
  }
  prompt.end();
}
#endif

template <class T, int kHead>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    attend_warpgroups(const __grid_constant__ WarpgroupParams all) {
#if LOCI_WARPGROUPS
  release_next();
  // Descriptors are there before the pass's first kernel.
  if (blockIdx.x >= all.p.a.counts[0]) return await_previous();
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
