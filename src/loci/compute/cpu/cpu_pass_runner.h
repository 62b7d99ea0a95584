// SPDX-License-Identifier: Apache-2.0
// Computes passes on the pool's threads. Every thread goes through all layers, shares each phase's work with
// the others and meets them at barriers. One pass at a time.
//
// A layer's phases (| is a barrier):
//   residual, norm, quantise | query, key, value products with norm of heads and rotation, K and V into the
//   blocks | attention | quantise | output product | residual, norm, quantise | gate and up products,
//   activation, quantise | down product |
// Before attention, layers of blocks that came as hidden states are projected, some blocks at a time, until
// none is on its way:
//   | rows are put into tiles | products of K and V into the blocks | the next blocks are awaited
// The thread that prepares a row of the next phase's input first adds the product to the residual stream,
// because a norm may come between the two. With one or two rows each thread has a residual stream of its own
// and prepares all inputs for itself, so the barriers after these steps are not needed. A mixture of experts
// takes the place of the last two phases (pass_mixture.cc).
#pragma once

#include <atomic>
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
#include "loci/compute/cpu/row_checks.h"
#include "loci/compute/cpu/thread_pool.h"
#include "loci/compute/pass_arrivals.h"
#include "loci/compute/patience.h"

namespace loci::cpu {

class CpuPassRunner {
 public:
  // All arguments must outlive the runner.
  CpuPassRunner(const ModelSpec& spec, const CpuWeights& weights, const KernelTable& kernels,
                ThreadPool& pool, BlockStorage& blocks, const HiddenProjector& projector);

  void run(const Pass& pass, std::vector<SpanResult>& results);
  // What the last pass has projected.
  const Projected& projected() const { return projected_; }
  // Not ok for good, and of all spans: the model's file has been written to.
  Status health() const;
  // Bytes of one captured row: the input of a layer's first products.
  std::uint64_t hidden_row_bytes() const { return attention_input_.stored_row_bytes(); }

 private:
  // Inputs that a thread prepares for itself, and its working memory.
  struct ThreadState {
    Activations attention_input, attention_output_input, ffn_input, router_input, output_input;
    std::vector<float> x;           // [kOwnRows][hidden_stride]
    std::vector<float> normalised;  // [kOwnRows][hidden_stride]: the input of a mixture
    std::vector<float> row;         // a normalised row
    std::vector<float> outputs;     // of a tile's products
    bool own = false;               // it uses the rows in x, not the shared ones
  };
  // Up to this many rows each thread prepares inputs for itself, which costs less than a barrier.
  static constexpr std::uint32_t kOwnRows = 2;

  void make_room();
  void release_embedding();
  void work(std::uint32_t thread);
  void run_layer(std::uint32_t thread, std::uint32_t layer);
  void run_output(std::uint32_t thread);
  void resize_inputs(std::uint32_t layer);

  std::uint32_t rows_after(std::uint32_t layer) const;  // rows that remain once the layer's keys and values
                                                        // are written

  // --- rows (pass_rows.cc) ---
  void copy_blocks(std::uint32_t thread);
  // From here on each thread has rows of its own, if there are only a few.
  void take_rows(ThreadState& state, std::uint32_t rows);
  // Calls make(row) for each row. A thread with rows of its own makes all of them; else the threads share the
  // rows, and a barrier follows.
  template <class Make>
  void each_row(std::uint32_t thread, std::uint32_t rows, const Make& make);
  Activations& input(ThreadState& state, std::uint32_t rows, Activations& shared, Activations& own) const;
  float* residual(ThreadState& state, std::uint32_t row) const;
  // Normalises a row into `out` [hidden_stride]; without a norm it returns the row itself.
  const float* normalise(const CpuNorm& norm, const float* x, float* out) const;
  void embed(ThreadState& state, std::uint32_t row);
  // Adds a row of `changes` [row][hidden_stride] to the residual stream, normalised first if there is a norm.
  void change_row(ThreadState& state, std::uint32_t row, const Buffer& changes, const CpuNorm& norm) const;
  // Finishes the residual stream's row of the layer before; the next reader of the row calls it.
  void begin_row(ThreadState& state, std::uint32_t layer, std::uint32_t row);
  // Makes the input of a layer's feed-forward part, or of its router, from a row of the residual stream.
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
  // Waits for the blocks that the layer reads, and projects those that come as hidden states while others
  // are on their way.
  void take_arrivals(std::uint32_t thread, std::uint32_t layer);
  // Projects the blocks that await_blocks() found as hidden states.
  void project_hidden(std::uint32_t thread, std::uint32_t layer);
  void place_heads(const float* outputs, std::uint32_t row, std::uint32_t first_head, std::uint32_t heads,
                   std::uint32_t layer, HeadKind kind);
  void feed_forward(std::uint32_t thread, const CpuFeedForward& ffn, const Activations& input);
  // Computes 32 columns of gate and up, from column 32 * unit on, for tiles [begin, end), and writes them
  // activated into `down`.
  void activate_unit(const CpuFeedForward& ffn, std::uint32_t unit, const Activations& input,
                     std::uint32_t begin, std::uint32_t end, Activations& down) const;
  void write_product(std::uint32_t thread, const PackedMatrix& matrix, const Activations& input, float* out);
  // Multiplies one tile with groups [first, first + count), adds biases, and writes the results from
  // `outputs` on.
  void multiply(const PackedMatrix& matrix, std::uint32_t first, std::uint32_t count,
                const Activations& input, std::uint32_t tile, float* outputs, std::uint32_t stride) const;

  // --- mixtures of experts (pass_mixture.cc) ---
  void run_mixture(std::uint32_t thread, const CpuLayer& layer, const Activations& router_input,
                   std::uint32_t rows);
  void score_experts(std::uint32_t thread, const PackedMatrix& router, const Activations& input);
  void gather_rows(std::uint32_t thread, std::uint32_t rows);
  void activate_experts(std::uint32_t thread, const CpuLayer& layer);
  void add_experts(std::uint32_t thread, const CpuLayer& layer, std::uint32_t rows);

  // --- blocks on their way; by the first thread, while the others wait at a barrier ---
  void begin_awaiting(std::uint32_t layer);
  void sort_out(std::uint32_t layer);
  // Until enough have come to be projected, or all have come.
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
  const RowChecks embedding_checks_, position_checks_;
  std::atomic<bool> has_changed_ = false;  // a row that these know
  std::uint64_t embedded_rows_ = 0;        // since the embedding's pages were released

  // The running pass's data.
  const Pass* pass_ = nullptr;
  PassPlan plan_;
  std::vector<std::uint8_t> poisoned_;  // [span]
  Patience patience_;
  std::vector<PassArrival> arrivals_;  // blocks that were not whole when the pass began
  struct Awaited {
    SlotId slot;
    std::uint32_t span = 0;  // that reads it
  };
  std::vector<Awaited> awaited_;  // of the running layer, what has not come
  // A layer of a block that came as hidden states, which the pass projects.
  struct HiddenSlice {
    SlotId slot;
    ProjectedSlice to;
  };
  // Projected together: enough rows for each weight that is read, and the fewest for which that is done
  // rather than waiting for more.
  static constexpr std::size_t kProjectedMax = 16, kProjectedMin = 4;
  std::vector<HiddenSlice> hidden_;  // kProjectedMax at most
  Projected projected_;
};

}  // namespace loci::cpu
