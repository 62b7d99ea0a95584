// SPDX-License-Identifier: Apache-2.0
// What attend_warpgroups reads: the ring of keys and values in shared memory, and the warps that fill it. One
// finds tasks and copies their context by the copy engine, three copy queries. They are ahead of the warps
// that multiply (attention_warpgroups.cuh), also from task to task.
#pragma once

#include "loci/compute/cuda/attention/attention_tile.cuh"
#include "loci/compute/cuda/attention/attention_warpgroups.h"
#include "loci/compute/cuda/simt_warpgroup.h"

namespace loci::cuda {

struct AttendWarpgroupsParams {
  TileMap map;  // of the layer's state: x dimensions of a head, y keys of all heads and then values, z slots
  AttentionParams p;
};

#if LOCI_WARPGROUPS

// Numbers of the block's barriers; 0 is __syncthreads()'s. A group's own and its turn are the first of two.
struct GroupBarrier {
  static constexpr unsigned kOwn = 1, kTurn = 3;
};

// One of the two warpgroups that multiply.
struct GroupTeam {
  LOCI_DEVICE static std::uint32_t group() { return threadIdx.x / kWarpgroup - 1; }
  LOCI_DEVICE static std::uint32_t thread() { return threadIdx.x % kWarpgroup; }
  LOCI_DEVICE static std::uint32_t warp() { return warp_id() % 4; }
  LOCI_DEVICE static void meet() { meet_at_barrier(GroupBarrier::kOwn + group(), kWarpgroup); }
};

// What a thread block has in shared memory.
template <int kHead>
struct PromptRing {
  using Shape = AttendWarpgroupsShape<kHead>;
  static constexpr std::uint32_t kKeyStages = Shape::kKeyStages, kValueStages = Shape::kValueStages;
  static constexpr std::uint32_t kStages = kKeyStages + kValueStages;
  // A task on its way to those who work on it. No pairs: there are no more.
  struct Next {
    AttentionTask task;
    AttentionRun run;
  };
  std::byte* begin;  // a multiple of 1024

  LOCI_DEVICE explicit PromptRing(std::byte* shared)
      : begin(shared + (1024 - shared_address(shared) % 1024) % 1024) {
    static_assert(2 * sizeof(Next) <= 96 && 96 + (2 * kStages + 6) * sizeof(Arrivals) <= 320);
  }
  LOCI_DEVICE Next& task(std::uint32_t place) const {
    return reinterpret_cast<Next*>(begin + Shape::kTileBytes)[place];
  }
  LOCI_DEVICE std::byte* queries(std::uint32_t place) const { return begin + place * Shape::kQueryBytes; }
  LOCI_DEVICE std::byte* keys(std::uint32_t stage) const {
    return begin + 2 * Shape::kQueryBytes + stage * Shape::kStepBytes;
  }
  LOCI_DEVICE std::byte* values(std::uint32_t stage) const { return keys(kKeyStages + stage); }
  LOCI_DEVICE Arrivals* keys_here(std::uint32_t stage) const { return arrivals() + stage; }
  LOCI_DEVICE Arrivals* values_here(std::uint32_t stage) const { return arrivals() + kKeyStages + stage; }
  LOCI_DEVICE Arrivals* keys_used(std::uint32_t stage) const { return arrivals() + kStages + stage; }
  LOCI_DEVICE Arrivals* values_used(std::uint32_t stage) const {
    return arrivals() + kStages + kKeyStages + stage;
  }
  LOCI_DEVICE Arrivals* task_here(std::uint32_t place) const { return arrivals() + 2 * kStages + place; }
  LOCI_DEVICE Arrivals* queries_here(std::uint32_t place) const {
    return arrivals() + 2 * kStages + 2 + place;
  }
  LOCI_DEVICE Arrivals* task_used(std::uint32_t place) const { return arrivals() + 2 * kStages + 4 + place; }
  LOCI_DEVICE Arrivals* arrivals() const {
    return reinterpret_cast<Arrivals*>(begin + Shape::kTileBytes + 96);
  }
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

// A warp arrives, when all its lanes have come here.
LOCI_DEVICE void arrive_warp(Arrivals* arrivals) {
  __syncwarp();
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

// A warp: finds the block's tasks, one after the other, and copies their keys and values. It is ahead of
// those who work on them by what the ring holds, also from task to task.
template <int kHead>
class ContextCopier {
 public:
  using Shape = AttendWarpgroupsShape<kHead>;

  // Reads the block's first task: before await_previous().
  LOCI_DEVICE ContextCopier(const AttendWarpgroupsParams& all, const PromptRing<kHead>& ring)
      : all_(all),
        ring_(ring),
        count_(all.p.a.counts->warpgroup_tasks),
        index_(blockIdx.x),
        view_(all.p, all.p.a.warpgroup_tasks[blockIdx.x]) {}

  LOCI_DEVICE void run() {
    RingPlace<2> place;
    for (;; place.next()) {
      await_arrivals(ring_.task_used(place.stage), place.parity ^ 1);
      if (index_ >= count_) break;
      if (lane_id() == 0) {
        ring_.task(place.stage) = {view_.task, view_.run};
        arrive(ring_.task_here(place.stage));
      }
      index_ = following();
      copy();
      if (index_ < count_) view_ = TaskView(all_.p, all_.p.a.warpgroup_tasks[index_]);
    }
    if (lane_id() == 0) {
      ring_.task(place.stage).task.pairs = 0;
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
    if (lane_id() == 0) taken = atomicAdd(&all_.p.a.counts->taken, 1u);
    return blocks() + __shfl_sync(~0u, taken, 0);
  }
  // The last block leaves the counters as they were.
  LOCI_DEVICE void leave() const {
    if (atomicAdd(&all_.p.a.counts->ended, 1u) + 1 < blocks()) return;
    all_.p.a.counts->taken = 0;
    all_.p.a.counts->ended = 0;
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

  const AttendWarpgroupsParams& all_;
  const PromptRing<kHead>& ring_;
  const std::uint32_t count_;
  std::uint32_t index_;  // of the next task
  TaskView view_;        // and what it is
  RingPlace<Shape::kKeyStages> keys_;
  RingPlace<Shape::kValueStages> values_;
};

// The other warps of that warpgroup copy the queries, up to one task ahead. Zeros beyond a task's
// pairs.
template <int kHead>
class QueryCopier {
 public:
  using Shape = AttendWarpgroupsShape<kHead>;

  LOCI_DEVICE QueryCopier(const AttentionParams& p, const PromptRing<kHead>& ring) : p_(p), ring_(ring) {}

  LOCI_DEVICE void run() const {
    for (RingPlace<2> place;; place.next()) {
      await_arrivals(ring_.task_here(place.stage), place.parity);
      const TaskView view(ring_.task(place.stage).task, ring_.task(place.stage).run);
      if (view.task.pairs == 0) return;
      copy(view, ring_.queries(place.stage));
      publish_shared();
      arrive_warp(ring_.queries_here(place.stage));
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

#endif  // LOCI_WARPGROUPS

}  // namespace loci::cuda
