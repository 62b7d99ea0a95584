// SPDX-License-Identifier: Apache-2.0
// Attention of many tokens over scattered blocks (Pensieve §4.4): one family of kernels for decode steps,
// prompt chunks and batches of both. A *run* is neighbouring rows of one span; its queries are at
// consecutive positions and see the context through one block table.
//
// A (row, head) of a run whose head reads key/value head k is a *pair* of (run, k): pair p is row p / ratio
// of the run and head k * ratio + p % ratio, where ratio = heads / kv_heads. The host makes a plan of *tasks*
// (attention_plan.h): neighbouring pairs of one key/value head, at most 16 (a decode tile) or 128 (a prompt
// tile; 64 of heads above 128), and a range of the context. Where a context is split, partial results are
// merged in order by a kernel of their own. Scores, softmax and sums are float32; probabilities are rounded
// to the element type before they multiply values. Tokens that a row does not see have no effect, whatever
// their slots hold.
//
// Determinism: the same plan gives the same bits. In deterministic mode (split_keys = kAttentionSplitKeys,
// and a plan made for it) a row's bits depend only on its own query and context: never on other rows, on the
// tile it is in, or on how its tokens were divided into passes. docs/cuda-attention.md says how.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/block_layout.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

inline constexpr std::uint32_t kAttentionTileKeys = 64;     // positions of the context that a step reads
inline constexpr std::uint32_t kAttentionDecodePairs = 16;  // of a decode tile; also of a partial's unit
// Pairs of a prompt tile.
constexpr std::uint32_t attention_prompt_pairs(std::uint32_t head_dim) { return head_dim > 128 ? 64 : 128; }
inline constexpr std::uint32_t kAttentionSplitKeys = 512;  // deterministic mode: partials end at multiples

// A run, in device memory.
struct AttentionRun {
  std::uint32_t row = 0;  // of the first query, in `queries` and `output`
  std::uint32_t rows = 0;
  std::uint32_t position = 0;  // of the first query: it sees [first_visible(window, position), position]
  std::uint32_t table = 0;     // begin of the span's block table in `tables`: slot of each 32 positions
};

// The work of one thread block, in device memory.
struct AttentionTask {
  static constexpr std::uint32_t kPromptTile = 1;  // else a decode tile
  static constexpr std::uint32_t kWhole = 2;       // it reads everything that its pairs see, and writes
                                                   // `output`
  std::uint32_t run = 0;
  std::uint32_t first_pair = 0;  // of the run
  std::uint32_t pairs = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t key_begin = 0;  // positions of the context that it reads: a multiple of kAttentionTileKeys,
  std::uint32_t key_end = 0;    // to at most one past the last row's; causal mask and window apply on top
  // The task's first unit of partial results; a unit is of 16 pairs. Its result takes ceil(pairs / 16) units
  // for each split (deterministic mode) or in all. A whole task that reads more than one split uses them as
  // working memory.
  std::uint32_t partial = 0;
  std::uint32_t flags = 0;
};

// The partials of at most 16 pairs, to be merged in order; in device memory.
struct AttentionMerge {
  std::uint32_t run = 0;
  std::uint32_t first_pair = 0;
  std::uint32_t pairs = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t partial = 0;   // first unit
  std::uint32_t partials = 0;  // count
  std::uint32_t stride = 0;    // units from one to the next
};

// How much of a plan's lists there is, in device memory: beyond it launched blocks do nothing.
struct AttentionCounts {
  std::uint32_t tasks = 0;
  std::uint32_t warpgroup_tasks = 0;
  std::uint32_t merges = 0;
  // Of attend_warpgroups, tasks that blocks have taken and blocks that have ended: 0 before a launch, and
  // again after it.
  std::uint32_t taken = 0;
  std::uint32_t ended = 0;
};

// All pointers are to device memory.
struct AttentionArguments {
  const void* queries = nullptr;  // [row][head][head_dim], element type, rotated; not scaled; 16-byte aligned
  void* output = nullptr;         // [row][head][head_dim], element type; 16-byte aligned
  LayerState state;               // head_dim a multiple of 16, at most 256
  const std::uint32_t* tables = nullptr;  // slots
  const AttentionRun* runs = nullptr;
  const AttentionTask* tasks = nullptr;
  const AttentionTask* warpgroup_tasks = nullptr;  // those of attend_warpgroups
  const AttentionMerge* merges = nullptr;          // of both
  AttentionCounts* counts = nullptr;
  // Launched: a graph is launched again with fewer. Of what there is none, no kernel is launched.
  std::uint32_t tasks_max = 0;
  std::uint32_t warpgroup_tasks_max = 0;
  std::uint32_t merges_max = 0;
  float* partial_values = nullptr;      // [unit][16][head_dim]; 16-byte aligned
  float* partial_statistics = nullptr;  // [unit][16][2]: maximum (base 2), sum; 8-byte aligned
  const float* sinks = nullptr;         // [heads] or null: one more score for each head, whose value vector
                                        // is zero
  std::uint32_t heads = 0;
  std::uint32_t window = 0;      // 0: all tokens before
  std::uint32_t split_keys = 0;  // kAttentionSplitKeys in deterministic mode, else 0
  float scale = 1;               // multiplies q·k; above 0
  float softcap = 0;             // 0: none
  std::uint32_t stages_max = 3;  // steps of the context that are copied ahead, if they fit
  ElementType type = ElementType::kBFloat16;
  bool prompt_tiles = false;  // some of `tasks` are prompt tiles: launches the kernel for both kinds
};

// Whether prompt tiles may run in attend_warpgroups: on Hopper, of head sizes 64 and 128, and not in
// deterministic mode, because it sums in an order of its own.
bool attention_has_warpgroups(const DeviceProperties& device, std::uint32_t head_dim, bool deterministic);

// Queues the attention of one layer: a kernel for each list that is not empty. Head sizes 64, 80, 96, 128
// and 256 have kernels; other multiples of 16 use the kernel of the next larger size.
void attend(const AttentionArguments& arguments, Stream& stream);

}  // namespace loci::cuda
