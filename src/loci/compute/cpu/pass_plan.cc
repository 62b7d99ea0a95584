// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/pass_plan.h"

#include <algorithm>

#include "loci/compute/check_pass.h"
#include "loci/compute/cpu/kernel_table.h"

namespace loci::cpu {

std::uint32_t AttentionTask::partials_begin(std::uint32_t window) const {
  return first_visible(window, position) / kPartialTokens;
}
std::uint32_t AttentionTask::partials_end() const { return (position + rows - 1) / kPartialTokens + 1; }

void PassPlan::make(const Pass& pass, std::uint32_t layers, const BlockStorage& blocks,
                    const AttentionShape& shape, std::uint32_t threads) {
  segments_.clear();
  row_segment_.clear();
  tasks_.clear();
  positions_end_ = 0;
  head_dim_ = shape.head_dim;
  std::vector<std::uint32_t> slots;
  for (std::uint32_t g = 0; g < blocks.groups().size(); ++g) slots.push_back(blocks.count(g));
  check_pass(pass, layers, blocks.groups(), slots);
  for (const Span& span : pass.spans) {
    positions_end_ = std::max(positions_end_, span.position + static_cast<std::uint32_t>(span.tokens.size()));
  }
  add_segments(pass, layers);
  add_tasks(pass, shape);
  shares_.resize(shape.windows.size());
  for (std::size_t i = 0; i < shape.windows.size(); ++i) share_out(shape.windows[i], threads, shares_[i]);
}

bool PassPlan::splits(std::uint32_t window, std::uint32_t threads) const {
  if (threads == 1 || tasks_.size() >= 4u * threads) return false;
  std::uint64_t results = 0;
  std::uint32_t most = 0;
  for (const AttentionTask& task : tasks_) {
    const std::uint32_t partials = task.partials_end() - task.partials_begin(window);
    most = std::max(most, partials);
    results += std::uint64_t{partials} * task.queries();
  }
  return most > 1 && results * query_result_floats(head_dim_) * sizeof(float) <= kSplitBytesMax;
}

void PassPlan::share_out(std::uint32_t window, std::uint32_t threads, AttentionShares& shares) const {
  shares.units.clear();
  shares.first_unit.clear();
  shares.first_result.clear();
  shares.split = splits(window, threads);
  if (!shares.split) return;
  std::uint64_t results = 0;
  for (std::uint32_t task = 0; task < tasks_.size(); ++task) {
    shares.first_unit.push_back(static_cast<std::uint32_t>(shares.units.size()));
    shares.first_result.push_back(results);
    const std::uint32_t begin = tasks_[task].partials_begin(window), end = tasks_[task].partials_end();
    for (std::uint32_t partial = begin; partial < end; ++partial) shares.units.push_back({task, partial});
    results += std::uint64_t{end - begin} * tasks_[task].queries();
  }
  std::stable_sort(shares.units.begin(), shares.units.end(), [&](const auto& a, const auto& b) {
    const std::uint32_t first = tasks_[a.task].segment, second = tasks_[b.task].segment;
    return first != second ? first < second : a.partial < b.partial;
  });
  shares.first_unit.push_back(static_cast<std::uint32_t>(shares.units.size()));
  shares.first_result.push_back(results);
}

std::uint64_t PassPlan::split_bytes() const {
  std::uint64_t most = 0;
  for (const AttentionShares& shares : shares_) {
    if (shares.split) most = std::max(most, shares.first_result.back());
  }
  return most * query_result_floats(head_dim_) * sizeof(float);
}

void PassPlan::add_segments(const Pass& pass, std::uint32_t layers) {
  for (std::uint32_t i = 0; i < pass.spans.size(); ++i) {
    const Span& span = pass.spans[i];
    const auto count = static_cast<std::uint32_t>(span.tokens.size());
    const std::uint32_t wanted = span.logits == LogitsWanted::kAll    ? count
                                 : span.logits == LogitsWanted::kLast ? 1
                                                                      : 0;
    if (wanted < count) segments_.push_back({i, 0, count - wanted, 0, span.layers.end, false});
    if (wanted > 0) segments_.push_back({i, count - wanted, wanted, 0, layers, true});
  }
  std::stable_sort(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) {
    return a.wanted != b.wanted ? a.wanted : a.end_layer > b.end_layer;
  });
  std::uint32_t row = 0;
  wanted_rows_ = 0;
  for (std::uint32_t i = 0; i < segments_.size(); ++i) {
    segments_[i].row = row;
    row += segments_[i].count;
    row_segment_.insert(row_segment_.end(), segments_[i].count, i);
    if (segments_[i].wanted) wanted_rows_ = row;
  }
}

void PassPlan::add_tasks(const Pass& pass, const AttentionShape& shape) {
  const std::uint32_t group = shape.heads / shape.kv_heads;
  const std::uint32_t tile_heads = std::min(group, shape.tile), tile_rows = std::max(1u, shape.tile / group);
  for (std::uint32_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const std::uint32_t tiles = (segment.count + tile_rows - 1) / tile_rows;
    for (std::uint32_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      for (std::uint32_t tile = tiles; tile-- > 0;) {  // the longest contexts first
        const std::uint32_t first = tile * tile_rows;
        for (std::uint32_t head = 0; head < group; head += tile_heads) {
          tasks_.push_back({i, segment.row + first, std::min(tile_rows, segment.count - first),
                            pass.spans[segment.span].position + segment.token + first, kv_head,
                            kv_head * group + head, std::min(tile_heads, group - head)});
        }
      }
    }
  }
}

std::uint32_t PassPlan::rows_in_layer(std::uint32_t layer) const {
  std::uint32_t rows = 0;
  for (const Segment& segment : segments_) {
    if (segment.end_layer > layer) rows += segment.count;
  }
  return rows;
}

std::uint32_t PassPlan::tasks_below(std::uint32_t rows) const {
  const auto first = std::partition_point(tasks_.begin(), tasks_.end(), [&](const AttentionTask& task) {
    return segments_[task.segment].row < rows;
  });
  return static_cast<std::uint32_t>(first - tasks_.begin());
}

std::uint32_t PassPlan::position(const Pass& pass, std::uint32_t row) const {
  const Segment& segment = segment_of(row);
  return pass.spans[segment.span].position + segment.token + row - segment.row;
}

}  // namespace loci::cpu
