// SPDX-License-Identifier: Apache-2.0
// A pass as rows: which token of which span each row is. They are ordered so that the rows of every layer are
// a prefix. Rows whose logits are wanted come first, then spans that reach the last layer, then spans that
// end below it, the deepest first. So a layer's rows are [0, rows_in_layer()), and once the last layer has
// written its keys and values it goes on with rows [0, wanted_rows()).
//
// Thread-compatible; made once for each pass, by the thread that calls Backend::finish().
#pragma once

#include <cstdint>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/compute/cpu/block_storage.h"

namespace loci::cpu {

// Neighbouring tokens of one span that lie in neighbouring rows.
struct Segment {
  std::uint32_t span = 0;
  std::uint32_t token = 0;  // the first one, counted in the span
  std::uint32_t count = 0;
  std::uint32_t row = 0;  // of the segment's first token
  std::uint32_t end_layer = 0;
  bool wanted = false;  // its logits are wanted
};

// A tile of (row, head) pairs over one key/value head: the input of one call of an attention kernel.
struct AttentionTask {
  std::uint32_t segment = 0;
  std::uint32_t row = 0;  // first row of the tile
  std::uint32_t rows = 0;
  std::uint32_t position = 0;  // of the first row
  std::uint32_t kv_head = 0;
  std::uint32_t head = 0;  // first of `heads` query heads
  std::uint32_t heads = 0;
  std::uint32_t queries() const { return rows * heads; }
  // Its queries see partials [partials_begin, partials_end) of 256 tokens through the window (0: no window).
  std::uint32_t partials_begin(std::uint32_t window) const;
  std::uint32_t partials_end() const;
};

struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t tile = 0;              // the most (row, head) pairs in a task
  std::vector<std::uint32_t> windows;  // the windows of the layers, each once
};

// The most that the results of split attention may take. No budget counts them, so beyond it nothing is
// split: threads compute whole tasks, which give the same bits. Little is lost then: of 32 query heads of 128
// dimensions these are contexts of four million tokens together, which are tasks enough for many threads.
inline constexpr std::uint64_t kSplitBytesMax = std::uint64_t{256} << 20;

// What one query of a unit gives: the greatest score, the sum of weights, the weighted values.
constexpr std::uint64_t query_result_floats(std::uint32_t head_dim) { return 2 + std::uint64_t{head_dim}; }

// How the threads divide the attention of the layers of one window. If there are only a few long contexts,
// all threads compute partials, which are merged afterwards.
struct AttentionShares {
  bool split = false;
  // One unit: a partial of a task. In each segment units are in the order of partials, then of tasks: heads
  // of the same blocks lie side by side, so what the processor fetches beyond the end of one is of use.
  struct Unit {
    std::uint32_t task = 0;
    std::uint32_t partial = 0;
    bool operator==(const Unit&) const = default;
  };
  std::vector<Unit> units;
  // [task], and the end of the last one: how many units the tasks before it have. The first N tasks' units
  // come first if these tasks are whole segments.
  std::vector<std::uint32_t> first_unit;
  // [task], and the end of the last one: how many results of queries those units have. The results of a task
  // lie there, unit after unit in the order of partials.
  std::vector<std::uint64_t> first_result;
};

class PassPlan {
 public:
  // Aborts if `pass` breaks the rules of pass.h.
  void make(const Pass& pass, std::uint32_t layers, const BlockStorage& blocks, const AttentionShape& shape,
            std::uint32_t threads);

  const std::vector<Segment>& segments() const { return segments_; }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(row_segment_.size()); }
  std::uint32_t wanted_rows() const { return wanted_rows_; }
  std::uint32_t rows_in_layer(std::uint32_t layer) const;
  const Segment& segment_of(std::uint32_t row) const { return segments_[row_segment_[row]]; }
  std::uint32_t position(const Pass& pass, std::uint32_t row) const;
  std::uint32_t positions_end() const { return positions_end_; }

  // The number of tasks, a prefix of all, whose rows are below `rows`.
  std::uint32_t tasks_below(std::uint32_t rows) const;
  const std::vector<AttentionTask>& tasks() const { return tasks_; }
  // By the index of the window in AttentionShape.
  const AttentionShares& shares(std::uint32_t window_index) const { return shares_[window_index]; }
  // Room for the results of split attention of any layer.
  std::uint64_t split_bytes() const;

 private:
  void add_segments(const Pass& pass, std::uint32_t layers);
  void add_tasks(const Pass& pass, const AttentionShape& shape);
  void share_out(std::uint32_t window, std::uint32_t threads, AttentionShares& shares) const;
  // Whether there are fewer tasks than the threads need, and partials of which room for the results is left.
  bool splits(std::uint32_t window, std::uint32_t threads) const;

  std::vector<Segment> segments_;
  std::vector<std::uint32_t> row_segment_;
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionShares> shares_;
  std::uint32_t head_dim_ = 0;
  std::uint32_t wanted_rows_ = 0;
  std::uint32_t positions_end_ = 0;
};

}  // namespace loci::cpu
