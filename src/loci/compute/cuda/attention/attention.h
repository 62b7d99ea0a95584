// Attention of many tokens over scattered blocks (Pensieve §4.4): one family of kernels for decode steps,
// prompt chunks and batches of both. A *run* is neighbouring rows of one span; its queries are at
// consecutive positions and see the context through one block table.
//
// The host makes a plan of *tasks* (attention_plan.h): a tile of (query row, head) pairs over one key/value
// head, and a range of the context. Where a context is split, partial results are merged in order by a second
// kernel. Scores, softmax and sums are float32; probabilities are rounded to the element type before they
// multiply values.
//
// Determinism: the same plan gives the same bits. With AttentionPlanner's fixed splits (deterministic mode)
// a row's bits depend on its own query and context alone: never on other rows, on the tile it is in, or on
// how its tokens were divided into passes.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/block_layout.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

// In device memory.
struct AttentionRun {
  std::uint32_t row = 0;       // of the first query, in `queries` and `output`
  std::uint32_t rows = 0;      //
  std::uint32_t position = 0;  // of the first query: it sees [first_visible(window, position), position]
  std::uint32_t table = 0;     // begin of the span's block table in `tables`: slot of each 32 positions
};

// In device memory: what one thread block computes.
struct AttentionTask {
  std::uint32_t run = 0;
  std::uint32_t first_row = 0;  // in the run
  std::uint32_t rows = 0;       //
  std::uint32_t kv_head = 0;    //
  std::uint32_t key_begin = 0;  // positions of the context that it reads, [begin, end): begin a multiple of
  std::uint32_t key_end = 0;    // the split's; the causal mask and the window apply on top
  std::uint32_t partial = 0;    // where its result goes, in units of `partial_stride` rows; kWhole: output
  static constexpr std::uint32_t kWhole = UINT32_MAX;
};

// In device memory: the partials of one task's rows, merged in order.
struct AttentionMerge {
  std::uint32_t run = 0;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t partial = 0;   // first
  std::uint32_t partials = 0;  // count
};

// All pointers are of the device.
struct AttentionArguments {
  const void* queries = nullptr;  // [row][head][head_dim], element type, rotated; not scaled
  void* output = nullptr;         // [row][head][head_dim], element type
  LayerState state;
  const std::uint32_t* tables = nullptr;  // slots
  const AttentionRun* runs = nullptr;
  const AttentionTask* tasks = nullptr;
  const AttentionMerge* merges = nullptr;
  const std::uint32_t* counts = nullptr;  // [2]: tasks, merges; beyond them launched blocks do nothing
  std::uint32_t tasks_max = 0;            // launched: a graph is launched again with fewer
  std::uint32_t merges_max = 0;
  void* partial_values = nullptr;       // f32 [partial][tile pairs][head_dim]
  float* partial_statistics = nullptr;  // [partial][tile pairs][2]: maximum (base 2), sum
  const float* sinks = nullptr;         // [heads] or null: one more score, whose value is zero
  std::uint32_t heads = 0;
  std::uint32_t window = 0;  // 0: all before
  float scale = 1;           // multiplies q·k
  float softcap = 0;         // 0: none
  ElementType type = ElementType::kBFloat16;
  bool prompt_tiles = false;  // the plan's tiles are prompt tiles (attention_plan.h), not decode tiles
};

// Queues the attention of one layer. head_dim 64, 80, 96, 128 or 256; others that are a multiple of 16 up to
// 256 run in the next larger one's kernel.
void attend(const AttentionArguments& arguments, Stream& stream);

}  // namespace loci::cuda
