// SPDX-License-Identifier: Apache-2.0
// The working memory of passes, on the device. It is allocated when the backend is made, for the number of
// rows that it was given. A pass that needs more makes it grow, which waits for the device and drops graphs
// that were captured with the old addresses.
//
// Thread-compatible; used by the thread that begins passes.
#pragma once

#include <cstdint>

#include "loci/base/status.h"
#include "loci/compute/cuda/cuda_weights.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

// How much room a pass needs.
struct PassNeeds {
  std::uint32_t rows = 0;
  std::uint32_t logits_rows = 0;  // at a time
  std::uint32_t sampled_rows = 0;
  std::uint32_t spans = 0;
  std::uint64_t descriptor_bytes = 0;
  std::uint64_t partial_values_bytes = 0;
  std::uint64_t partial_statistics_bytes = 0;
};

class PassBuffers {
 public:
  PassBuffers(const ModelSpec& spec, const CudaWeights& weights, const Device& device);

  // Errors: kResourceExhausted naming bytes and field; earlier memory may then be lost.
  Status reserve(const PassNeeds& needs);
  // Room for both `inputs` of so many rows. Errors: kResourceExhausted.
  Status reserve_inputs(std::uint32_t rows);
  // Changes whenever a buffer has moved.
  std::uint32_t generation() const { return generation_; }
  std::uint64_t size_bytes() const;

  Memory descriptors;       // cuda_pass_plan.h
  Memory residual;          // f32 [rows][hidden]
  Memory normed;            // elements [rows][hidden]: of attention, the feed-forward part, the output
  Memory normed_beside;     // elements [rows][hidden]: of a parallel layer's feed-forward part
  Memory qkv;               // elements [rows][(heads + 2 * kv_heads) * head_dim]
  Memory queries;           // elements [rows][heads * head_dim]
  Memory attended;          // elements [rows][heads * head_dim]
  Memory attention_change;  // f32 [rows][hidden]
  Memory ffn_change;        // f32 [rows][hidden]
  Memory gate_up;           // elements [rows][2 * ffn], of experts [rows * uses][2 * ffn]
  Memory activated;         // elements [rows][ffn], of experts [rows * uses][ffn]
  Memory partial_values, partial_statistics;  // attention.h
  // Elements [layer][rows][hidden]: of the layers' first products, where graphs keep them. Passes take turns.
  Memory inputs[2];
  Memory logits;            // f32 [logits_rows][vocabulary]
  Memory samples;           // u32 [spans]: of the last pass
  Memory sample_workspace;  // rows.h
  // For mixtures:
  Memory scores;           // f32 [rows][experts]
  Memory chosen;           // u32 [rows][uses]
  Memory expert_weights;   // f32 [rows][uses]
  Memory expert_offsets;   // u32 [experts + 1]
  Memory expert_sources;   // u32 [rows * uses]
  Memory expert_places;    // u32 [rows][uses]
  Memory expert_inputs;    // elements [rows * uses][hidden]
  Memory expert_products;  // f32 [rows * uses][hidden]

 private:
  struct Wish {
    Memory* memory;
    std::uint64_t bytes;
  };
  Status grow(const Wish& wish, const char* what);
  Status grow_samples(std::uint64_t bytes);

  const ModelSpec& spec_;
  const CudaWeights& weights_;
  const Device& device_;
  std::uint32_t generation_ = 0;
};

}  // namespace loci::cuda
