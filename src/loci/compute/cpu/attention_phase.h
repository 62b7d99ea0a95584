// SPDX-License-Identifier: Apache-2.0
// Attention of one layer over scattered blocks, divided among the threads of a pass. A thread computes whole
// tasks. If only a few contexts are long, threads compute partials of 256 tokens, which are merged afterwards
// in the same order.
//
// Sized before a pass by resize(); run() is called by every thread of the pool for each layer.
#pragma once

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
  // Working memory of one thread.
  struct Scratch {
    float queries[kMaxAttentionRows * kAttentionStride];
    std::uint8_t query_tile[kMaxAttentionRows * kTileBlockBytes * (kMaxHeadDim / kQuantBlock)];  // for q8
    float scores[kMaxAttentionRows * kAttentionStride];
    Context contexts[2];  // of the unit that is computed, and of the next one
    Results state, partial;
  };

  void gather_queries(const AttentionInput& input, const AttentionTask& task, Scratch& scratch) const;
  AttentionPartial describe(const AttentionTask& task, Scratch& scratch, Results& results) const;
  void find_context(const AttentionInput& input, const Unit& unit, Context& context) const;
  // Between layers.
  static void forget_contexts(Scratch& scratch);
  // Computes attention of a task's queries over one partial. `next`: what this thread computes after it, or
  // kNothing.
  void compute(const AttentionInput& input, const Unit& unit, const Unit& next, Scratch& scratch,
               Results& results) const;
  // What a unit has computed in scratch.partial is kept in `results`, without the gaps between its rows, and
  // comes back from there.
  void keep(const AttentionTask& task, const Scratch& scratch, float* results) const;
  void bring(const AttentionTask& task, const float* results, Scratch& scratch) const;
  // Merges `from` into scratch.state, which holds the partials before it.
  void merge(const AttentionTask& task, Results& from, Scratch& scratch) const;
  void forget(const AttentionTask& task, Scratch& scratch) const;
  void finish(const AttentionInput& input, const AttentionTask& task, Scratch& scratch) const;
  void clear(const AttentionInput& input, const AttentionTask& task) const;
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
