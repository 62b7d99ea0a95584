// SPDX-License-Identifier: Apache-2.0
// Computes passes on the pool's threads: every thread walks through the layers, shares each phase's work
// with the others and meets them at barriers. One pass at a time.
//
// A layer's phases (| is a barrier):
//   residual, norm, quantise | query, key, value products with norm of heads and rotation, K and V into the
//   blocks | attention | quantise | output product | residual, norm, quantise | gate and up products,
//   activation, quantise | down product |
// Before attention, layers of blocks that came as hidden states are projected:
//   rows are put into tiles | products of K and V into the blocks |
// What a product adds to the residual stream is added by who prepares the next phase's input, a row at a
// time, because norms may come between. With one or two rows each thread has a residual stream of its own
// and prepares inputs for itself: the barriers after that fall away. A mixture of experts takes the place
// of the last two phases (pass_mixture.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/attention_phase.h"
#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/cpu_weights.h"
#include "loci/compute/cpu/file_pages.h"
#include "loci/compute/cpu/hidden_projector.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/mixture.h"
#include "loci/compute/cpu/pass_plan.h"
#include "loci/compute/cpu/rope_table.h"
#include "loci/compute/cpu/thread_pool.h"
#include "loci/compute/pass_arrivals.h"
#include "loci/compute/patience.h"

namespace loci::cpu {

class PassRunner {
 public:
  // All of them must outlive the runner.
  PassRunner(const ModelSpec& spec, const CpuWeights& weights, const KernelTable& kernels, ThreadPool& pool,
             BlockStorage& blocks, const HiddenProjector& projector);

  void run(const Pass& pass, std::vector<SpanResult>& results);
  // One row of the input of the layers' first products, as captured.
  std::uint64_t hidden_row_bytes() const { return attention_input_.stored_row_bytes(); }

 private:
  // Inputs that a thread prepares for itself, and what it works in.
  struct ThreadState {
    Activations attention_input, attention_output_input, ffn_input, router_input, output_input;
    std::vector<float> x;           // [kOwnRows][hidden_stride]
    std::vector<float> normalised;  // [kOwnRows][hidden_stride]: the input of a mixture
    std::vector<float> row;         // a normalised row
    std::vector<float> outputs;     // of a tile's products
    bool own = false;               // its rows are x, not the shared ones
  };
  // Rows up to which each thread prepares inputs for itself: less work than a barrier.
  static constexpr std::uint32_t kOwnRows = 2;

  void make_room();
  void release_embedding();
  void work(std::uint32_t thread);
  void run_layer(std::uint32_t thread, std::uint32_t layer);
  void run_output(std::uint32_t thread);
  void resize_inputs(std::uint32_t layer);

  std::uint32_t rows_after(std::uint32_t layer) const;  // its keys and values are written

  // --- rows (pass_rows.cc) ---
  void copy_blocks(std::uint32_t thread);
  // From here on the threads have rows of their own, if there are few.
  void take_rows(ThreadState& state, std::uint32_t rows);
  // make(row) for each row: by each thread for itself where it has its own, else shared out and ended by
  // a barrier.
  template <class Make>
  void each_row(std::uint32_t thread, std::uint32_t rows, const Make& make);
  Activations& input(ThreadState& state, std::uint32_t rows, Activations& shared, Activations& own) const;
  float* residual(ThreadState& state, std::uint32_t row) const;
  // The norm of a row in `out` [hidden_stride], or the row itself.
  const float* normalise(const CpuNorm& norm, const float* x, float* out) const;
  void embed(ThreadState& state, std::uint32_t row) const;
  // Adds `changes` [row][hidden_stride], after a norm if there is one.
  void change_row(ThreadState& state, std::uint32_t row, const Buffer& changes, const CpuNorm& norm) const;
  // What the layer before has left to do: the next reader of the residual stream does it.
  void begin_row(ThreadState& state, std::uint32_t layer, std::uint32_t row) const;
  // The input of a layer's feed-forward part (of its router) from a row of the residual stream.
  void set_feed_forward_row(ThreadState& state, const CpuLayer& layer, std::uint32_t row,
                            Activations& target);
  const Activations& prepare_attention(std::uint32_t thread, std::uint32_t layer);
  const Activations& prepare_attention_output(std::uint32_t thread, std::uint32_t rows);
  const Activations& prepare_feed_forward(std::uint32_t thread, std::uint32_t layer);
  const Activations& prepare_output(std::uint32_t thread);
  void capture(std::uint32_t thread, std::uint32_t layer, const Activations& input);

  // --- products (pass_products.cc) ---
  void project(std::uint32_t thread, std::uint32_t layer, const Activations& input);
  void project_heads(ThreadState& state, const PackedMatrix& matrix, std::uint32_t unit, std::uint32_t layer,
                     const Activations& input, HeadKind kind);
  // What await_blocks() found as hidden states.
  void project_hidden(std::uint32_t thread, std::uint32_t layer);
  void place_heads(const float* outputs, std::uint32_t row, std::uint32_t first_head, std::uint32_t heads,
                   std::uint32_t layer, HeadKind kind);
  void feed_forward(std::uint32_t thread, const CpuFeedForward& ffn, const Activations& input);
  // Columns [32 * unit, ...) of gate and up for tiles [begin, end), activated, into `down`.
  void activate_unit(const CpuFeedForward& ffn, std::uint32_t unit, const Activations& input,
                     std::uint32_t begin, std::uint32_t end, Activations& down) const;
  void write_product(std::uint32_t thread, const PackedMatrix& matrix, const Activations& input, float* out);
  // Products of one tile with groups [first, first + count), biases added, placed from `outputs` on.
  void multiply(const PackedMatrix& matrix, std::uint32_t first, std::uint32_t count,
                const Activations& input, std::uint32_t tile, float* outputs, std::uint32_t stride) const;

  // --- mixtures of experts (pass_mixture.cc) ---
  void run_mixture(std::uint32_t thread, const CpuLayer& layer, const Activations& router_input,
                   std::uint32_t rows);
  void score_experts(std::uint32_t thread, const PackedMatrix& router, const Activations& input);
  void gather_rows(std::uint32_t thread, std::uint32_t rows);
  void activate_experts(std::uint32_t thread, const CpuLayer& layer);
  void add_experts(std::uint32_t thread, const CpuLayer& layer, std::uint32_t rows);

  void await_blocks(std::uint32_t layer);

  const ModelSpec& spec_;
  const CpuWeights& weights_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  BlockStorage& blocks_;
  const HiddenProjector& projector_;
  AttentionPhase attention_;
  std::vector<RopeTable> ropes_;
  std::vector<std::uint32_t> window_index_;  // [layer], in shape_
  AttentionShape shape_;
  const std::uint32_t hidden_stride_;  // floats between rows, a multiple of 16
  const std::uint32_t query_width_;    // heads * head_dim
  const std::uint32_t query_stride_;
  const float query_factor_;  // attention scale * log2(e), or / softcap
  const float softcap_;       // of scores, times log2(e)
  const std::size_t activation_;

  Buffer x_;                 // f32 [rows][hidden_stride]: the residual stream; pads are zero
  Buffer attention_change_;  // f32 [rows][hidden_stride]: the attention output product
  Buffer ffn_change_;        // f32 [rows][hidden_stride]: the down product
  Buffer queries_;           // f32 [rows][query_stride]
  Buffer attended_;          // f32 [rows][query_stride]; pads are zero
  Buffer logits_;            // f32 [wanted rows][vocabulary]
  Activations attention_input_, attention_output_input_, ffn_input_, down_input_, output_input_;
  Activations router_input_, expert_input_, expert_down_, hidden_input_;
  Buffer normalised_;  // f32 [rows][hidden_stride]: the input of a mixture
  Mixture mixture_;
  std::vector<ThreadState> threads_;
  const FilePages file_pages_;
  std::uint64_t embedded_rows_ = 0;  // since the embedding's pages were released

  // Of the running pass.
  const Pass* pass_ = nullptr;
  PassPlan plan_;
  std::vector<std::uint8_t> poisoned_;  // [span]
  Patience patience_;
  std::vector<PassArrival> arrivals_;  // blocks that were not whole when the pass began
  // The layer's, claimed: hidden states, of which the pass makes slices.
  struct HiddenSlice {
    SlotId slot;
    ProjectedSlice to;
  };
  std::vector<HiddenSlice> hidden_;
};

}  // namespace loci::cpu
