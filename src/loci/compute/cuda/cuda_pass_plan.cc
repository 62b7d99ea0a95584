// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_pass_plan.h"

#include <algorithm>
#include <cstring>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/compute/check_pass.h"

namespace loci::cuda {

namespace {

// Arrays one after the other, each aligned.
class Places {
 public:
  template <class T>
  std::uint32_t array(std::uint64_t count) {
    constexpr std::uint64_t kAlignment = 16;
    const std::uint64_t at = bytes_;
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    LOCI_CHECK(bytes_ <= UINT32_MAX, "descriptors stay below 4 GiB");
    return static_cast<std::uint32_t>(at);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

template <class T>
void put(std::byte* memory, std::uint32_t offset, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(memory + offset, values.data(), values.size() * sizeof(T));
}
// And `value` behind them, up to `count`.
void put(std::byte* memory, std::uint32_t offset, const std::vector<std::uint32_t>& values,
         std::uint32_t count, std::uint32_t value) {
  put(memory, offset, values);
  std::fill(reinterpret_cast<std::uint32_t*>(memory + offset) + values.size(),
            reinterpret_cast<std::uint32_t*>(memory + offset) + count, value);
}

}  // namespace

void PassPlan::make(const Pass& pass, std::span<const std::uint32_t> slots) {
  check_pass(pass, shape_.layers, shape_.groups, slots);
  for (const Span& span : pass.spans) {
    LOCI_CHECK(span.position + span.tokens.size() <= shape_.context_tokens,
               "a position beyond the context that the backend was made for");
  }
  add_segments(pass);
  add_rows(pass);
  tables_.clear();
  for (std::uint32_t g = 0; g < shape_.groups.size(); ++g) add_group(pass, g);
  add_attentions();
}

void PassPlan::add_segments(const Pass& pass) {
  segments_.clear();
  feeds_ = captures_ = false;
  decode_step_ = !pass.spans.empty() && pass.copies.empty();
  for (std::uint32_t i = 0; i < pass.spans.size(); ++i) {
    const Span& span = pass.spans[i];
    const auto count = static_cast<std::uint32_t>(span.tokens.size());
    const std::uint32_t wanted = span.logits == LogitsWanted::kAll    ? count
                                 : span.logits == LogitsWanted::kLast ? 1
                                                                      : 0;
    if (wanted < count) segments_.push_back({i, 0, count - wanted, 0, span.layers.end, false, false});
    if (wanted > 0) {
      segments_.push_back({i, count - wanted, wanted, 0, shape_.layers, true, span.sampling.has_value()});
    }
    feeds_ |= span.token_of.has_value();
    captures_ |= !span.capture.empty();
    decode_step_ &= count == 1 && wanted == 1;
  }
  std::stable_sort(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) {
    if (a.wanted != b.wanted) return a.wanted;
    return a.sampled != b.sampled ? a.sampled : a.end_layer > b.end_layer;
  });
  rows_ = wanted_rows_ = sampled_rows_ = 0;
  for (Segment& segment : segments_) {
    segment.row = rows_;
    rows_ += segment.count;
    if (segment.wanted) wanted_rows_ = rows_;
    if (segment.sampled) sampled_rows_ = rows_;
  }
}

void PassPlan::add_rows(const Pass& pass) {
  tokens_.clear();
  sources_.clear();
  positions_.clear();
  samples_.clear();
  for (const Segment& segment : segments_) {
    const Span& span = pass.spans[segment.span];
    for (std::uint32_t i = segment.token; i < segment.token + segment.count; ++i) {
      if (!span.token_of) LOCI_CHECK(span.tokens[i].value < shape_.vocabulary, "a token of the vocabulary");
      tokens_.push_back(span.token_of ? 0 : span.tokens[i].value);
      sources_.push_back(span.token_of.value_or(FeedArguments::kNone));
      positions_.push_back(span.position + i);
    }
    if (!segment.sampled) continue;
    const DeviceSampling& sampling = *span.sampling;
    SampleRow row;
    row.logits_row = segment.row;
    row.sample = segment.span;
    row.temperature = sampling.temperature;
    row.top_k = sampling.top_k;
    row.top_p = sampling.top_p;
    row.min_p = sampling.min_p;
    row.uniform = sample_uniform(sampling.seed, sampling.draw);
    samples_.push_back(row);
  }
}

void PassPlan::add_group(const Pass& pass, std::uint32_t g) {
  std::vector<std::uint32_t> begins;
  for (const Span& span : pass.spans) {
    begins.push_back(static_cast<std::uint32_t>(tables_.size()));
    const std::uint32_t end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    const std::uint32_t first = first_visible(shape_.groups[g].window, span.position) / kBlockTokens;
    for (std::uint32_t i = 0; i * kBlockTokens < end; ++i) {
      // Kernels never read the entries of what is out of sight.
      tables_.push_back(i < first ? 0 : span.tables[g].blocks[i].value);
    }
  }
  places_[g].clear();
  runs_[g].clear();
  for (const Segment& segment : segments_) {
    const Span& span = pass.spans[segment.span];
    const std::uint32_t position = span.position + segment.token;
    runs_[g].push_back({segment.row, segment.count, position, begins[segment.span]});
    for (std::uint32_t p = position; p < position + segment.count; ++p) {
      const bool there = p < span.tables[g].write_from;
      places_[g].push_back(there ? PlaceArguments::kNowhere
                                 : span.tables[g].blocks[p / kBlockTokens].value * kBlockTokens +
                                       p % kBlockTokens);
    }
  }
  copies_[g].clear();
  for (const BlockCopy& copy : pass.copies) {
    if (copy.group == g) copies_[g].push_back({copy.from.value, copy.to.value, copy.tokens});
  }
}

void PassPlan::add_attentions() {
  attentions_count_ = 0;
  attention_of_.assign(shape_.layers, 0);
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const std::uint32_t group = shape_.group_of[layer], window = shape_.windows[layer];
    const std::uint32_t rows = rows_after(layer);
    const auto runs =
        static_cast<std::uint32_t>(std::partition_point(segments_.begin(), segments_.end(),
                                                        [&](const Segment& s) { return s.row < rows; }) -
                                   segments_.begin());
    std::size_t i = 0;
    while (i < attentions_count_ && (attentions_[i].group != group || attentions_[i].window != window ||
                                     attentions_[i].runs != runs)) {
      ++i;
    }
    attention_of_[layer] = static_cast<std::uint32_t>(i);
    if (i < attentions_count_) continue;
    if (attentions_.size() == i) attentions_.emplace_back();
    ++attentions_count_;
    attentions_[i].group = group;
    attentions_[i].window = window;
    attentions_[i].runs = runs;
  }
}

std::uint32_t PassPlan::rows_in_layer(std::uint32_t layer) const {
  std::uint32_t rows = 0;
  for (const Segment& segment : segments_) {
    if (segment.end_layer > layer) rows += segment.count;
  }
  return rows;
}

AttentionShape PassPlan::shape_of(const Attention& attention) const {
  AttentionShape shape = shape_.attention;
  shape.window = attention.window;
  return shape;
}

void PassPlan::need_partials(const AttentionLimits& limits) {
  partial_values_bytes_ = std::max(partial_values_bytes_, limits.values_bytes);
  partial_statistics_bytes_ = std::max(partial_statistics_bytes_, limits.statistics_bytes);
}

void PassPlan::lay_out(std::uint32_t bucket, DescriptorLayout& layout) {
  LOCI_CHECK(bucket == 0 || rows_ <= bucket, "a bucket has room for the rows");
  padded_rows_ = std::max(bucket, rows_);
  partial_values_bytes_ = partial_statistics_bytes_ = 0;
  Places places;
  layout.tokens = places.array<std::uint32_t>(padded_rows_);
  layout.sources = places.array<std::uint32_t>(padded_rows_);
  layout.positions = places.array<std::uint32_t>(padded_rows_);
  layout.learned_positions = places.array<std::uint32_t>(padded_rows_);
  layout.samples = places.array<SampleRow>(bucket > 0 ? bucket : samples_.size());
  layout.sample_count = places.array<std::uint32_t>(1);
  for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
    layout.groups[g].places = places.array<std::uint32_t>(padded_rows_);
    layout.groups[g].runs = places.array<AttentionRun>(bucket > 0 ? bucket : runs_[g].size());
    layout.groups[g].copies = places.array<TokenCopy>(copies_[g].size());
  }
  layout.attentions.resize(attentions_count_);
  for (std::size_t i = 0; i < attentions_count_; ++i) {
    Attention& attention = attentions_[i];
    const AttentionShape shape = shape_of(attention);
    std::uint32_t rows = 0;
    for (std::uint32_t r = 0; r < attention.runs; ++r) rows += runs_[attention.group][r].rows;
    const AttentionLimits limits = bucket > 0               ? decode_limits(shape, bucket)
                                   : rows == attention.runs ? decode_limits(shape, rows)
                                                            : attention_limits(shape, attention.runs, rows);
    need_partials(limits);
    AttentionPlanner(shape, limits)
        .plan(std::span(runs_[attention.group]).first(attention.runs), attention.plan);
    DescriptorLayout::Attention& to = layout.attentions[i];
    const auto room = [&](const auto& list, std::uint32_t most) {
      return bucket > 0 ? most : static_cast<std::uint32_t>(list.size());
    };
    to.tasks_max = room(attention.plan.tasks, limits.others.tasks);
    to.warpgroup_tasks_max = room(attention.plan.warpgroup_tasks, limits.warpgroups.tasks);
    to.merges_max = room(attention.plan.merges, limits.merges());
    to.tasks = places.array<AttentionTask>(to.tasks_max);
    to.warpgroup_tasks = places.array<AttentionTask>(to.warpgroup_tasks_max);
    to.merges = places.array<AttentionMerge>(to.merges_max);
    to.counts = places.array<AttentionCounts>(1);
    to.prompt_tiles = attention.plan.prompt_tiles;
  }
  layout.tables = places.array<std::uint32_t>(tables_.size());
  bytes_ = places.bytes();
}

void PassPlan::write(const DescriptorLayout& layout, std::byte* memory) const {
  put(memory, layout.tokens, tokens_, padded_rows_, 0);
  put(memory, layout.sources, sources_, padded_rows_, FeedArguments::kNone);
  put(memory, layout.positions, positions_, padded_rows_, 0);
  std::vector<std::uint32_t> learned(positions_);
  for (std::uint32_t& position : learned) position += shape_.position_offset;
  put(memory, layout.learned_positions, learned, padded_rows_, shape_.position_offset);
  put(memory, layout.samples, samples_);
  put(memory, layout.sample_count, std::vector{static_cast<std::uint32_t>(samples_.size())});
  for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
    put(memory, layout.groups[g].places, places_[g], padded_rows_, PlaceArguments::kNowhere);
    put(memory, layout.groups[g].runs, runs_[g]);
    put(memory, layout.groups[g].copies, copies_[g]);
  }
  for (std::size_t i = 0; i < attentions_count_; ++i) {
    const AttentionPlan& plan = attentions_[i].plan;
    put(memory, layout.attentions[i].tasks, plan.tasks);
    put(memory, layout.attentions[i].warpgroup_tasks, plan.warpgroup_tasks);
    put(memory, layout.attentions[i].merges, plan.merges);
    put(memory, layout.attentions[i].counts, std::vector{plan.counts()});
  }
  put(memory, layout.tables, tables_);
}

}  // namespace loci::cuda
