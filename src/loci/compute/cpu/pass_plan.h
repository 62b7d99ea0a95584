// SPDX-License-Identifier: Apache-2.0
// A pass as rows: which token of which span each row is, in an order that makes the rows of every layer
// a prefix. Rows whose logits are wanted come first, then the spans that reach the last layer, then
// those that end below it, the deepest first; so a layer's rows are [0, rows_in_layer()), and what the
// last layer computes after its keys and values are written is [0, wanted_rows()).
//
// Thread-compatible; made once a pass, by the thread that calls Backend::finish().
#pragma once

#include <cstdint>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/compute/cpu/block_storage.h"

namespace loci::cpu {

// Neighbouring tokens of one span in neighbouring rows.
struct Segment {
  std::uint32_t span = 0;
  std::uint32_t token = 0;  // first, in the span
  std::uint32_t count = 0;
  std::uint32_t row = 0;  // of the first token
  std::uint32_t end_layer = 0;
  bool wanted = false;  // logits
};

// A tile of (row, head) pairs over one key/value head: what one attention kernel takes.
struct AttentionTask {
  std::uint32_t segment = 0;
  std::uint32_t row = 0;  // first row of the tile
  std::uint32_t rows = 0;
  std::uint32_t position = 0;  // of the first row
  std::uint32_t kv_head = 0;
  std::uint32_t head = 0;  // first of `heads` query heads
  std::uint32_t heads = 0;
  // Its queries see partials [partials_begin, partials_end) of 256 tokens through a window (0: of any
  // length).
  std::uint32_t partials_begin(std::uint32_t window) const;
  std::uint32_t partials_end() const;
};

struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t tile = 0;              // most (row, head) pairs of a task
  std::vector<std::uint32_t> windows;  // of the layers, each once
};

// How the threads share out the attention of the layers of one window. Few long contexts: partials are
// computed apart by all threads, then merged.
struct AttentionShares {
  bool split = false;
  // (task, partial) of each unit, in the order of tasks.
  struct Unit {
    std::uint32_t task = 0;
    std::uint32_t partial = 0;
  };
  std::vector<Unit> units;
  std::vector<std::uint32_t> first_unit;  // [task], and the end
};

class PassPlan {
 public:
  // Aborts where `pass` breaks the rules of pass.h.
  void make(const Pass& pass, std::uint32_t layers, const BlockStorage& blocks, const AttentionShape& shape,
            std::uint32_t threads);

  const std::vector<Segment>& segments() const { return segments_; }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(row_segment_.size()); }
  std::uint32_t wanted_rows() const { return wanted_rows_; }
  std::uint32_t rows_in_layer(std::uint32_t layer) const;
  const Segment& segment_of(std::uint32_t row) const { return segments_[row_segment_[row]]; }
  std::uint32_t position(const Pass& pass, std::uint32_t row) const;
  std::uint32_t positions_end() const { return positions_end_; }

  // Tasks whose rows are below `rows`, a prefix.
  std::uint32_t tasks_below(std::uint32_t rows) const;
  const std::vector<AttentionTask>& tasks() const { return tasks_; }
  // By the index of the window in AttentionShape.
  const AttentionShares& shares(std::uint32_t window_index) const { return shares_[window_index]; }
  std::uint32_t most_units() const;

 private:
  void add_segments(const Pass& pass, std::uint32_t layers);
  void add_tasks(const Pass& pass, const AttentionShape& shape);
  void share_out(std::uint32_t window, std::uint32_t threads, AttentionShares& shares) const;

  std::vector<Segment> segments_;
  std::vector<std::uint32_t> row_segment_;
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionShares> shares_;
  std::uint32_t wanted_rows_ = 0;
  std::uint32_t positions_end_ = 0;
};

}  // namespace loci::cpu
