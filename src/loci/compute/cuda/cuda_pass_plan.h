// SPDX-License-Identifier: Apache-2.0
// A pass as the device runs it: rows, where each row's keys and values go, block tables, the tasks of
// attention, samples. All of this is one piece of memory, the *descriptors*, which is uploaded in one copy.
// Kernels find their parts at the offsets in DescriptorLayout.
//
// Rows are ordered so that the rows of every layer are a prefix: first those whose tokens are sampled on the
// device, then the others whose logits are wanted, then the rest of the spans that reach the last layer, then
// those that end below it, the deepest first.
//
// Pure: no device is touched. Thread-compatible; one pass at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/compute/cuda/attention/attention_plan.h"
#include "loci/compute/cuda/rows/rows.h"

namespace loci::cuda {

// Neighbouring tokens of one span that lie in neighbouring rows: a run of attention.
struct Segment {
  std::uint32_t span = 0;
  std::uint32_t token = 0;  // the first one, counted in the span
  std::uint32_t count = 0;
  std::uint32_t row = 0;  // of the segment's first token
  std::uint32_t end_layer = 0;
  bool wanted = false;   // its logits are wanted
  bool sampled = false;  // on the device
};

// Properties of the model and the device that all passes share.
struct PassShape {
  std::uint32_t layers = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t context_tokens = 0;     // positions that tables have room for
  std::uint32_t position_offset = 0;    // of learned positions
  std::vector<LayerGroup> groups;       // with sizes
  std::vector<std::uint32_t> group_of;  // [layer]
  std::vector<std::uint32_t> windows;   // [layer]
  AttentionShape attention;             // without the window
};

// Offsets in bytes from the beginning of the descriptors. Arrays have the capacities for which they were laid
// out.
struct DescriptorLayout {
  std::uint32_t tokens = 0;             // u32 [rows]
  std::uint32_t sources = 0;            // u32 [rows]: sources of feed_tokens()
  std::uint32_t positions = 0;          // u32 [rows]
  std::uint32_t learned_positions = 0;  // u32 [rows]: with the model's offset
  std::uint32_t samples = 0;            // SampleRow [rows]
  std::uint32_t sample_count = 0;       // u32 [1]
  struct Group {
    std::uint32_t places = 0;  // u32 [rows]
    std::uint32_t runs = 0;    // AttentionRun [runs]
    std::uint32_t copies = 0;  // TokenCopy [copies]
  };
  Group groups[kLayerGroupsMax];
  struct Attention {
    std::uint32_t tasks = 0;            // AttentionTask []
    std::uint32_t warpgroup_tasks = 0;  // AttentionTask []
    std::uint32_t merges = 0;           // AttentionMerge []
    std::uint32_t counts = 0;           // AttentionCounts [1]
    std::uint32_t tasks_max = 0, warpgroup_tasks_max = 0, merges_max = 0;
    bool prompt_tiles = false;
  };
  std::vector<Attention> attentions;  // by PassPlan::attention_of()
  std::uint32_t tables = 0;           // u32 []: slots of all groups; last, of any length
};

class PassPlan {
 public:
  explicit PassPlan(const PassShape& shape) : shape_(shape) {}

  // Aborts if `pass` breaks the rules of pass.h. `slots`: the number of slots in each group's pool.
  void make(const Pass& pass, std::span<const std::uint32_t> slots);

  // True if the pass has only decode steps, each of one token whose logits are wanted, so that a graph can
  // run it.
  bool is_decode_step() const { return decode_step_; }
  bool captures() const { return captures_; }  // some spans want their hidden states
  const std::vector<Segment>& segments() const { return segments_; }
  std::uint32_t rows() const { return rows_; }
  std::uint32_t wanted_rows() const { return wanted_rows_; }
  std::uint32_t sampled_rows() const { return sampled_rows_; }  // these are the first of the wanted rows
  bool feeds() const { return feeds_; }                         // some tokens are samples of the pass before
  std::uint32_t copies(std::uint32_t group) const {
    return static_cast<std::uint32_t>(copies_[group].size());
  }
  // Rows that enter the layer, and rows that go on after its attention.
  std::uint32_t rows_in_layer(std::uint32_t layer) const;
  std::uint32_t rows_after(std::uint32_t layer) const {
    return layer + 1 == shape_.layers ? wanted_rows_ : rows_in_layer(layer);
  }
  std::uint32_t attention_of(std::uint32_t layer) const { return attention_of_[layer]; }
  // Bytes for the partial results of attention.
  std::uint64_t partial_values_bytes() const { return partial_values_bytes_; }
  std::uint64_t partial_statistics_bytes() const { return partial_statistics_bytes_; }

  // Lays the descriptors out: for this pass only; or, with bucket > 0, for any decode step of at most
  // `bucket` rows, at offsets that depend only on the bucket.
  void lay_out(std::uint32_t bucket, DescriptorLayout& layout);
  std::uint64_t descriptor_bytes() const { return bytes_; }
  // `memory` has descriptor_bytes() bytes. Rows beyond the pass's own do nothing.
  void write(const DescriptorLayout& layout, std::byte* memory) const;

 private:
  // Layers with the same attention: in one group, through one window, over the same rows.
  struct Attention {
    std::uint32_t group = 0;
    std::uint32_t window = 0;
    std::uint32_t runs = 0;
    AttentionPlan plan;
  };

  void add_segments(const Pass& pass);
  void add_rows(const Pass& pass);
  void add_group(const Pass& pass, std::uint32_t group);
  void add_attentions();
  AttentionShape shape_of(const Attention& attention) const;
  void need_partials(const AttentionLimits& limits);

  const PassShape& shape_;
  std::vector<Segment> segments_;
  std::uint32_t rows_ = 0, wanted_rows_ = 0, sampled_rows_ = 0;
  bool feeds_ = false, decode_step_ = false, captures_ = false;
  std::vector<std::uint32_t> tokens_, sources_, positions_;  // [row]
  std::vector<SampleRow> samples_;
  std::vector<std::uint32_t> places_[kLayerGroupsMax];  // [row]
  std::vector<AttentionRun> runs_[kLayerGroupsMax];     // [segment]
  std::vector<TokenCopy> copies_[kLayerGroupsMax];
  std::vector<std::uint32_t> tables_;
  std::vector<Attention> attentions_;
  std::size_t attentions_count_ = 0;         // how many of them are used
  std::vector<std::uint32_t> attention_of_;  // [layer]
  std::uint64_t partial_values_bytes_ = 0, partial_statistics_bytes_ = 0;
  std::uint32_t padded_rows_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace loci::cuda
