// SPDX-License-Identifier: Apache-2.0
// Row kernels of a pass other than matrix products: norms, rotation, activations, routing, sampling. All of
// them are queued on a stream, and all pointers are to device memory. `Elements` have the element type. Each
// row's bits depend only on that row.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/block_layout.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/cuda/simt.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

// Without a weight there is no norm.
struct RowNorm {
  const float* weight = nullptr;  // [width]
  const float* bias = nullptr;    // [width] or null; kLayer only
  NormKind kind = NormKind::kRms;
  float epsilon = 0;
  LOCI_HOST_DEVICE bool present() const { return weight != nullptr; }
};

// residual += post(change), then the norms of the residual for its next readers. It is fused, so the residual
// is read once and written once.
//
// Only `residual` is changed in place; outputs overlap neither it, nor the changes, nor each other. With
// rows_from only the named rows of residual and changes are read and written; if there is a change, these
// rows must be distinct.
struct AddNormArguments {
  float* residual = nullptr;       // f32 [rows][width]
  const float* change = nullptr;   // f32 [rows][width] or null: nothing is added
  const float* change2 = nullptr;  // likewise, after the first (parallel layers); not without it
  RowNorm post, post2;             // of change, change2
  RowNorm norm;                    // absent: the residual itself, as elements
  void* output = nullptr;          // elements [rows][width], or null
  RowNorm norm2;                   // for a second reader (parallel layers); absent: the same as norm
  void* output2 = nullptr;         // elements [rows][width], or null
  float* output_floats = nullptr;  // f32 [rows][width] of `norm`, or null (a mixture's router)
  const std::uint32_t* rows_from =
      nullptr;  // [rows]: row i of the outputs is of residual row rows_from[i]; or null
  std::uint32_t rows = 0;
  std::uint32_t width = 0;
  ElementType type = ElementType::kBFloat16;
};
void add_norm(const AddNormArguments& arguments, Stream& stream);

// Finishes queries, keys and values of new tokens: norm of heads, rotation, and keys and values written into
// their blocks. State is always finite: values beyond the element type's range become its largest value, and
// NaN its lowest. head_dim is a multiple of 8 up to 256.
struct PlaceArguments {
  // Elements [rows][(heads + 2 * kv_heads) * head_dim], biases added. Infinite ones count
  // as the largest value.
  const void* qkv = nullptr;
  void* queries = nullptr;  // elements [rows][heads][head_dim]; with heads = 0 there are none
  LayerState state;
  const std::uint32_t* positions = nullptr;  // [rows]
  // [rows]: slot * 32 + position % 32 where the row's keys and values go; kNowhere: their state is there
  // already.
  const std::uint32_t* places = nullptr;
  static constexpr std::uint32_t kNowhere = UINT32_MAX;
  const float* query_norm = nullptr;  // [head_dim] or null; kRms
  const float* key_norm = nullptr;
  float norm_epsilon = 0;
  // [position][rope_dimensions / 2] cosine and sine times magnitude, computed on the host in double; or null.
  const float2* rope = nullptr;
  std::uint32_t rope_dimensions = 0;
  RopeLayout rope_layout = RopeLayout::kHalves;
  std::uint32_t rows = 0;
  std::uint32_t heads = 0;
  ElementType type = ElementType::kBFloat16;
};
void place_rows(const PlaceArguments& arguments, Stream& stream);

// activation(gate) * up; without a gate activation(up) (kClampedSwiglu always has one). Results beyond the
// element type's range become its largest value. Not in place.
struct ActivateArguments {
  // Elements [rows][2 * width]: gate, then up; without a gate [rows][width]. Biases are added already.
  // Infinite ones count as the largest value.
  const void* input = nullptr;
  void* output = nullptr;  // elements [rows][width]
  bool gated = true;
  Activation activation = Activation::kSilu;
  std::uint32_t rows = 0;
  std::uint32_t width = 0;
  ElementType type = ElementType::kBFloat16;
};
void activate(const ActivateArguments& arguments, Stream& stream);

// --- mixtures of experts ---

// Chooses the experts of each row and their weights, and lists the rows of each expert for
// multiply_experts(). The best scores are chosen; of equal scores that of the lower expert; NaN loses. A
// row's uses are in ascending order of experts, an expert's inputs in ascending order of rows.
struct RouteArguments {
  const float* scores = nullptr;  // f32 [rows][experts], biases added
  std::uint32_t rows = 0;
  std::uint32_t experts = 0;
  std::uint32_t uses = 0;
  bool normalised = true;            // ModelSpec::expert_weights_normalised
  std::uint32_t* chosen = nullptr;   // [rows][uses]: experts
  float* weights = nullptr;          // [rows][uses]
  std::uint32_t* offsets = nullptr;  // [experts + 1]
  std::uint32_t* sources = nullptr;  // [rows * uses]: the row from which each input of an expert comes
  std::uint32_t* places = nullptr;   // [rows][uses]: the index of each use among those inputs
};
void route(const RouteArguments& arguments, Stream& stream);
// output[i] = input[sources[i]], elements [count][width].
void gather_rows(const void* input, const std::uint32_t* sources, std::uint32_t count, std::uint32_t width,
                 void* output, Stream& stream);
// output[row] = sum over its uses, in order, of weight * products[place]; f32 [rows][width].
struct CombineArguments {
  const float* products = nullptr;  // f32 [rows * uses][width], biases added
  const float* weights = nullptr;
  const std::uint32_t* places = nullptr;
  float* output = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t uses = 0;
  std::uint32_t width = 0;
};
void combine(const CombineArguments& arguments, Stream& stream);

// --- blocks ---

// Copies one layer of the first tokens of blocks to other blocks (BlockCopy). `copies` is on the device; no
// block is both a source and a target.
struct TokenCopy {
  std::uint32_t from = 0, to = 0, tokens = 0;  // slots
};
void copy_tokens(const LayerState& state, const TokenCopy* copies, std::uint32_t count, Stream& stream);

// A block that came as hidden states: the rows [32][width] that the products of keys and values consume lie
// where the layer's slice will be.
struct HiddenBlock {
  std::uint32_t slot = 0;
  std::uint32_t position = 0;  // of its first token
};
// Copies the rows of such blocks out of one layer's slices, one block after the other, and says where
// place_rows() is to put what they make.
struct StageArguments {
  static constexpr std::uint32_t kBlocksMax = 64;
  LayerState state;
  std::uint64_t block_bytes = 0;       // of a block's rows; a multiple of 16
  std::byte* rows = nullptr;           // [count][block_bytes]
  std::uint32_t* positions = nullptr;  // [count * 32]
  std::uint32_t* places = nullptr;     // [count * 32]: PlaceArguments::places
  std::uint32_t count = 0;             // at most kBlocksMax
  HiddenBlock blocks[kBlocksMax];      // [count]
};
void stage_hidden(const StageArguments& arguments, Stream& stream);

// --- logits and samples ---

// logit = softcap * tanh(logit / softcap), in place.
void cap_logits(float* logits, std::uint64_t count, float softcap, Stream& stream);

// DeviceSampling as the kernels read it, in device memory.
struct SampleRow {
  std::uint32_t logits_row = 0;
  std::uint32_t sample = 0;  // index of the sample in `samples`
  float temperature = 0;     // 0: the greatest logit, the lowest id among equals
  std::uint32_t top_k = 0;   // 0: all
  float top_p = 1;
  float min_p = 0;
  double uniform = 0;  // in [0, 1): sample_uniform(seed, draw) of base/random.h
};
struct SampleArguments {
  const float* logits = nullptr;         // f32 [rows][vocabulary]
  std::uint32_t vocabulary = 0;          // at most kSampleVocabularyMax
  const SampleRow* rows = nullptr;       // [count_max]
  const std::uint32_t* count = nullptr;  // [1], in device memory; rows beyond it do nothing
  std::uint32_t count_max = 0;           // launched
  std::uint32_t* samples = nullptr;
  void* workspace = nullptr;  // sample_workspace_bytes(count_max or more, vocabulary), aligned to 16
};
inline constexpr std::uint32_t kSampleVocabularyMax = 1u << 20;
std::uint64_t sample_workspace_bytes(std::uint32_t rows_max, std::uint32_t vocabulary);
// Samples tokens. Temperature, top-k, top-p, min-p and the draw have the order and meaning of
// engine/run/sampler.h. NaN counts as -inf. A row's sample depends only on its logits and its SampleRow.
// sampling.cu has the algorithm.
void sample(const SampleArguments& arguments, Stream& stream);

// Replaces rows' tokens by samples of the pass before, which only the device has.
struct FeedArguments {
  static constexpr std::uint32_t kNone = UINT32_MAX;
  const std::uint32_t* sources = nullptr;  // [rows]: index in `samples`; kNone: the token stays as it is
  const std::uint32_t* samples = nullptr;  // of the pass before
  std::uint32_t* tokens = nullptr;         // [rows]
  std::uint32_t rows = 0;
};
void feed_tokens(const FeedArguments& arguments, Stream& stream);

}  // namespace loci::cuda
