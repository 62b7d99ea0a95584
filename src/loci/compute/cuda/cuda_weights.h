// SPDX-License-Identifier: Apache-2.0
// A model's weights in device memory: matrices as products/matrix.h holds them, projections that read the
// same input are stacked into one matrix (query, key and value; gate and up). Norms, biases and sinks as f32;
// tables of rotations, computed in float64. Immutable once made.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/matrix.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

// A matrix and what is added to its products.
struct CudaProjection {
  DeviceMatrix matrix;
  const float* bias = nullptr;  // [matrix.rows], of the device, or null
  bool present() const { return matrix.present(); }
};

struct CudaLayer {
  RowNorm attention_norm, attention_post_norm, ffn_norm, ffn_post_norm;  // [hidden]
  CudaProjection qkv;                 // [(heads + 2 * kv_heads) * head_dim, hidden]
  const float* query_norm = nullptr;  // [head_dim] or null
  const float* key_norm = nullptr;
  const float* sinks = nullptr;     // [heads] or null
  CudaProjection attention_output;  // [hidden, heads * head_dim]
  CudaProjection router;            // [experts, hidden]; absent: dense
  CudaProjection gate_up;           // of each expert: gate (if there is one), then up
  CudaProjection down;              // of each expert [hidden, ffn]
  std::uint32_t ffn = 0;            // width, of one expert
  bool gated = false;

  bool mixture() const { return router.present(); }
};

struct CudaRope {
  const float2* table = nullptr;  // [position][dimensions / 2]: cosine and sine times magnitude
  std::uint32_t dimensions = 0;
  RopeLayout layout = RopeLayout::kHalves;
};

class CudaWeights {
 public:
  // Rotations are computed for `context_tokens` positions. Errors: kInvalidArgument naming the tensor;
  // kResourceExhausted naming the bytes.
  static Result<CudaWeights> load(const ModelSpec& spec, const Device& device, ElementType element,
                                  std::uint32_t context_tokens);

  const std::vector<CudaLayer>& layers() const { return layers_; }
  const std::vector<CudaRope>& ropes() const { return ropes_; }
  const RowNorm& output_norm() const { return output_norm_; }
  const DeviceMatrix& embedding() const { return embedding_; }
  const DeviceMatrix* position_embedding() const {  // or null
    return position_embedding_.present() ? &position_embedding_ : nullptr;
  }
  const DeviceMatrix& output() const { return output_.present() ? output_ : embedding_; }
  std::uint64_t size_bytes() const { return size_bytes_; }

  std::uint32_t ffn_width = 0;     // the largest width of dense layers; 0: there are none
  std::uint32_t expert_width = 0;  // the largest width of experts; 0: there are none

 private:
  std::vector<CudaLayer> layers_;
  std::vector<CudaRope> ropes_;
  RowNorm output_norm_;
  DeviceMatrix embedding_, position_embedding_;
  DeviceMatrix output_;  // absent: the embedding
  Memory vectors_, rotations_;
  std::uint64_t size_bytes_ = 0;
};

// Of place_rows(), what depends on the layer alone: norms of heads, rotation.
PlaceArguments place_arguments(const ModelSpec& spec, const CudaWeights& weights, ElementType element,
                               std::uint32_t layer);

}  // namespace loci::cuda
