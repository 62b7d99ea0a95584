// SPDX-License-Identifier: Apache-2.0
// Plans which thread block computes which part of a pass's attention: tiles of (row, head) pairs, and how
// their contexts are split so that all multiprocessors have work and end together. Pure: the same runs give
// the same plan, and no device is touched. A plan serves all layers of a group, which share tables and
// window.
//
// The size of a plan is bounded by the number of runs and rows (attention_limits()), never by the length of
// contexts, so that a graph that was captured once serves longer contexts. A split that would exceed the
// bounds is not made.
//
// On Hopper prompt tiles and decode tiles are computed by kernels of their own, one after the other, so each
// kind is planned as if it had the device for itself.
//
// Thread-compatible. Cost: O(tiles log tiles), tiles <= runs + rows * ratio / 128, plus what is written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loci/compute/cuda/attention/attention.h"

namespace loci::cuda {

struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t window = 0;
  std::uint32_t multiprocessors = 0;
  bool deterministic = false;
  bool warpgroups = false;  // attention_has_warpgroups(): prompt tiles are attend_warpgroups'
};

// Sizes that suffice for all plans of at most this many runs, and rows of all runs together.
struct AttentionLimits {
  struct List {
    std::uint32_t tasks = 0;
    std::uint32_t merges = 0;
    std::uint32_t units = 0;  // units of 16 pairs in the partial results
  };
  List warpgroups;                     // of the tasks of attend_warpgroups
  List others;                         // of all other tasks
  std::uint64_t values_bytes = 0;      // of AttentionArguments::partial_values
  std::uint64_t statistics_bytes = 0;  // of AttentionArguments::partial_statistics

  std::uint32_t merges() const { return warpgroups.merges + others.merges; }
};
// Of plans of at most so many runs and rows, of which one run may have all.
AttentionLimits attention_limits(const AttentionShape& shape, std::uint32_t runs_max, std::uint32_t rows_max);
// Of decodes: plans of at most so many runs of one row each.
AttentionLimits decode_limits(const AttentionShape& shape, std::uint32_t runs_max);

struct AttentionPlan {
  std::vector<AttentionTask> warpgroup_tasks, tasks;  // the longest first
  std::vector<AttentionMerge> merges;
  std::uint32_t units = 0;    // used
  bool prompt_tiles = false;  // among `tasks`

  AttentionCounts counts() const;
};

class AttentionPlanner {
 public:
  // `limits` come from attention_limits(); plans stay within them.
  AttentionPlanner(const AttentionShape& shape, const AttentionLimits& limits);

  // Aborts if there are more runs or rows than the limits are for, or a run without rows.
  void plan(std::span<const AttentionRun> runs, AttentionPlan& plan);

 private:
  struct Tile {
    std::uint32_t run = 0;
    std::uint32_t first_pair = 0, pairs = 0;
    std::uint32_t key_begin = 0, key_end = 0;
    std::uint32_t flags = 0;
  };
  // A tile's context, or a part of it, with its cost in quarters of a decode tile's step.
  struct Piece {
    std::uint64_t cost = 0;
    std::uint32_t tile = 0;
    std::uint32_t begin = 0, end = 0;    // positions
    std::uint32_t index = 0, count = 0;  // index among the tile's pieces, and their count
  };
  static constexpr std::uint64_t kNoSplit = UINT64_MAX;

  // Key/value heads whose tasks are played through: all heads are alike. For attend_warpgroups, two: it has a
  // block a multiprocessor, and half as many are for a head of eight as there are.
  std::uint32_t played_heads() const { return by_warpgroups_ && shape_.kv_heads > 1 ? 2 : 1; }
  // How many thread blocks of these run at a time.
  std::uint32_t lanes() const;
  std::uint64_t step_cost(const Tile& tile) const;
  const AttentionLimits::List& limits() const { return by_warpgroups_ ? limits_.warpgroups : limits_.others; }
  // Those of attend_warpgroups, or the others.
  void make_tiles(std::span<const AttentionRun> runs);
  // Splits tiles that cost more than `cap` into pieces of about that cost. False: a limit would be exceeded.
  bool split(std::uint64_t cap);
  void split_tile(std::uint32_t tile, std::uint64_t cap);
  std::uint32_t units_of(const Piece& piece) const;
  // The time at which the last thread block ends, if they start in the order of `pieces_`.
  std::uint64_t makespan();
  void choose();
  void write(AttentionPlan& plan) const;  // behind what is there

  const AttentionShape shape_;
  const AttentionLimits limits_;
  const std::uint32_t ratio_;
  std::vector<Tile> tiles_;
  bool by_warpgroups_ = false;  // tiles_ are those of attend_warpgroups
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> ends_;  // of lanes, a heap
};

}  // namespace loci::cuda
