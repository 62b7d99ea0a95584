// SPDX-License-Identifier: Apache-2.0
// Attention of one layer over scattered blocks, divided among the threads of a pass. A thread computes whole
// tasks. If only a few contexts are long, threads compute partials of 256 tokens, which are merged afterwards
// in the same order.
//
// The tasks of a long prompt read the same blocks. A thread takes up to 16 of them together, partial by
// partial, and widens f16 state to float32 once for all of them: the conversions of one task take a tenth of
// its time. 16 tokens of 3 query heads are four tasks; P, Q: partials:
//
//   tasks one by one       t0: P Q    t1: P Q    t2: P Q    t3: P Q
//   together               P: t0 widens it, t1 t2 t3    Q: t0 widens it, t1 t2 t3
//
// Sized before a pass by resize(); run() is called by every thread of the pool for each layer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/pass_plan.h"
#include "loci/compute/cpu/thread_pool.h"

namespace loci::cpu {

// The input of one layer, shared by all threads.
struct AttentionInput {
  const Pass& pass;
  const PassPlan& plan;
  const std::vector<std::uint8_t>& poisoned;  // [span]: the rows of poisoned spans become zero
  std::uint32_t layer = 0;
  std::uint32_t window = 0;        // of the layer; 0: none
  std::uint32_t window_index = 0;  // in the plan
  float softcap = 0;               // as in AttentionPartial
  const float* sinks = nullptr;    // [heads] times log2(e), or nullptr
  std::uint32_t rows = 0;          // the first rows of the plan
  const float* queries = nullptr;  // [row][stride], rotated and scaled
  float* out = nullptr;            // [row][stride]
  std::uint32_t stride = 0;
};

class AttentionPhase {
 public:
  AttentionPhase(const KernelTable& kernels, ThreadPool& pool, const BlockStorage& blocks,
                 std::uint32_t head_dim);

  void resize(const PassPlan& plan);
  // Does not end with a barrier: `out` is complete after the caller's next one.
  void run(std::uint32_t thread, const AttentionInput& input);

 private:
  using Unit = AttentionShares::Unit;
  static constexpr std::uint32_t kPartialBlocks = kPartialTokens / kTokensPerBlock;
  static constexpr Unit kNothing = {~0u, 0};
  // Tasks that read widened state together.
  static constexpr std::uint32_t kWideTasks = 16, kWideTasksMin = 2;
  static constexpr std::uint32_t kTiles = kWideTasks, kNoTask = ~0u;
  // Larger heads' widened partials would leave a second-level cache no room.
  static constexpr std::uint32_t kWideHeadDim = 128;
  // Memory for the results of one AttentionPartial.
  struct Results {
    float maximum[kLanes];
    float sum[kLanes];
    float out[kMaxAttentionRows * kAttentionStride];
  };
  // What one unit's queries see in one layer.
  struct Context {
    Unit unit;
    std::uint32_t hidden[kMaxAttentionRows], visible[kMaxAttentionRows];
    std::uint32_t first_block, end_block;
    HeadState blocks[kPartialBlocks];  // [first_block, end_block)
  };
  // A task's queries, and what its partials so far have given.
  struct Tile {
    std::uint32_t task;  // whose queries these are, or kNoTask
    float queries[kMaxAttentionRows * kAttentionStride];
    std::uint8_t query_tile[kMaxAttentionRows * kTileBlockBytes * (kMaxHeadDim / kQuantBlock)];  // for q8
    Results state;
  };
  // Working memory of one thread.
  struct Scratch {
    Tile tiles[kTiles];
    float scores[kMaxAttentionRows * kAttentionStride];
    Context contexts[2];  // of the unit that is computed, and of the next one
    Results partial;
    alignas(64) float wide[2 * kPartialTokens * kWideHeadDim];
  };

  // Gathers a task's queries if the tile has others.
  void take_queries(const AttentionInput& input, std::uint32_t task, Tile& tile) const;
  void gather_queries(const AttentionInput& input, const AttentionTask& task, Tile& tile) const;
  AttentionPartial describe(const AttentionTask& task, Scratch& scratch, Tile& tile, Results& results) const;
  void find_context(const AttentionInput& input, const Unit& unit, Context& context) const;
  // Between layers.
  static void forget_layer(Scratch& scratch);
  // Computes attention of a task's queries over one partial. `next`: what this thread computes after it, or
  // kNothing.
  void compute(const AttentionInput& input, const Unit& unit, const Unit& next, Tile& tile,
               Scratch& scratch) const;
  // What a unit has computed in scratch.partial is kept in `results`, without the gaps between its rows, and
  // comes back from there.
  void keep(const AttentionTask& task, const Scratch& scratch, float* results) const;
  void bring(const AttentionTask& task, const float* results, Scratch& scratch) const;
  // Merges scratch.partial into the tile's state, which holds the partials before it.
  void merge(const AttentionTask& task, Scratch& scratch, Tile& tile) const;
  static void forget(const AttentionTask& task, Tile& tile);
  void finish(const AttentionInput& input, const AttentionTask& task, Scratch& scratch, Tile& tile) const;
  void clear(const AttentionInput& input, const AttentionTask& task) const;
  bool is_poisoned(const AttentionInput& input, const AttentionTask& task) const;

  // How many tasks from `first` on, below `end`, are computed together.
  std::uint32_t together(const AttentionInput& input, std::uint32_t first, std::uint32_t end) const;
  // Computes a task. `after`: the unit that this thread computes after it, or kNothing.
  void run_task(const AttentionInput& input, std::uint32_t task, const Unit& after, Scratch& scratch) const;
  // Computes `count` tasks from `first` on over widened state.
  void run_together(const AttentionInput& input, std::uint32_t first, std::uint32_t count,
                    Scratch& scratch) const;
  // Widens what is left of a context's blocks.
  void widen_rest(const Context& context, Scratch& scratch, std::array<bool, kPartialBlocks>& widened) const;
  void compute_together(const AttentionInput& input, std::uint32_t first, std::uint32_t count,
                        std::uint32_t partial, Scratch& scratch) const;
  void run_split(std::uint32_t thread, const AttentionInput& input, std::uint32_t tasks);

  const KernelTable& kernels_;
  const StateKernels& state_kernels_;
  ThreadPool& pool_;
  const BlockStorage& blocks_;
  const std::uint32_t head_dim_;
  Buffer scratch_;       // [threads] Scratch
  Buffer unit_results_;  // [task][unit]: [query] maximum, [query] sum, [query][head_dim] out
};

}  // namespace loci::cpu
