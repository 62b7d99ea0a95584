// Computes passes on the pool's threads: every thread walks through the layers, shares each phase's work
// with the others and meets them at barriers. One pass at a time.
//
// A layer's phases (| is a barrier):
//   norm and quantise | query, key, value products with rotation, K and V into the blocks | attention |
//   quantise | output product, added to x | norm and quantise | gate and up products, activation,
//   quantise | down product, added to x |
// With one or two rows each thread prepares the products' inputs for itself and the barriers after that
// fall away.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/attention_phase.h"
#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/cpu_weights.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/pass_plan.h"
#include "loci/compute/cpu/rope_table.h"
#include "loci/compute/cpu/thread_pool.h"

namespace loci::cpu {

class PassRunner {
 public:
  // All of them must outlive the runner.
  PassRunner(const ModelSpec& spec, const CpuWeights& weights, const KernelTable& kernels, ThreadPool& pool,
             BlockStorage& blocks);

  void run(const Pass& pass, std::vector<SpanResult>& results);
  // One row of the input of the layers' first products, as captured.
  std::uint64_t hidden_row_bytes() const { return attention_input_.stored_row_bytes(); }

 private:
  // Inputs that a thread prepares for itself, and what it works in.
  struct ThreadState {
    Activations hidden_input, attention_input, output_input, attention_output_input;
    std::vector<float> row;      // a normalised row
    std::vector<float> outputs;  // of a tile's products
  };
  // Makes row `row` of an input.
  using RowSource = void (PassRunner::*)(std::uint32_t row, const float* norm, ThreadState& state,
                                         Activations& input) const;

  void make_room();
  void work(std::uint32_t thread);
  void start(std::uint32_t thread);
  void run_layer(std::uint32_t thread, std::uint32_t layer);
  void run_output(std::uint32_t thread);
  void resize_inputs(std::uint32_t thread, std::uint32_t rows);

  void normalise_row(std::uint32_t row, const float* norm, ThreadState& state, Activations& input) const;
  void attention_row(std::uint32_t row, const float* norm, ThreadState& state, Activations& input) const;
  // Fills `shared` with all threads, or `own`; returns the one that was filled.
  const Activations& prepare(std::uint32_t thread, std::uint32_t rows, const float* norm, RowSource source,
                             Activations& shared, Activations& own);
  void capture(std::uint32_t thread, std::uint32_t layer, const Activations& input);

  void project(std::uint32_t thread, std::uint32_t layer, const Activations& input);
  void project_heads(ThreadState& state, const PackedMatrix& matrix, std::uint32_t unit, std::uint32_t layer,
                     const Activations& input, int kind);
  void place_heads(const float* outputs, std::uint32_t row, std::uint32_t first_head, std::uint32_t heads,
                   std::uint32_t layer, int kind);
  void feed_forward(std::uint32_t thread, const CpuLayer& layer, const Activations& input);
  void add_product(std::uint32_t thread, const PackedMatrix& matrix, const Activations& input);
  // Products of one tile with groups [first, first + count), biases added, placed from `outputs` on.
  using PlaceRows = decltype(KernelTable::place_rows);
  void multiply(const PackedMatrix& matrix, std::uint32_t first, std::uint32_t count,
                const Activations& input, std::uint32_t tile, PlaceRows place, float* outputs,
                std::uint32_t stride) const;
  void await_blocks(std::uint32_t layer);
  void mark_whole_blocks();
  void mark_whole_blocks(std::uint32_t group);

  const ModelSpec& spec_;
  const CpuWeights& weights_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  BlockStorage& blocks_;
  AttentionPhase attention_;
  RopeTable rope_;
  const std::uint32_t hidden_stride_;  // floats between rows, a multiple of 16
  const std::uint32_t query_width_;    // heads * head_dim
  const std::uint32_t query_stride_;
  const float query_factor_;  // attention scale * log2(e)

  Buffer x_;         // f32 [rows][hidden_stride]: the residual stream; pads are zero
  Buffer queries_;   // f32 [rows][query_stride]
  Buffer attended_;  // f32 [rows][query_stride]; pads are zero
  Buffer logits_;    // f32 [wanted rows][vocabulary]
  Activations attention_input_, attention_output_input_, ffn_input_, down_input_, output_input_;
  std::vector<ThreadState> threads_;

  // Of the running pass.
  const Pass* pass_ = nullptr;
  PassPlan plan_;
  std::vector<std::uint8_t> poisoned_;  // [span]
  struct Arrival {
    std::uint32_t span;
    std::uint32_t group;
    SlotId slot;
    std::uint32_t computed_layers;  // written by the pass itself
  };
  std::vector<Arrival> arrivals_;  // blocks that were not whole when the pass began
};

}  // namespace loci::cpu
