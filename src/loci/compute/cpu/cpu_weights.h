// SPDX-License-Identifier: Apache-2.0
// A model's weights as the CPU backend holds them: matrices are packed (each expert's separately), norms and
// biases are floats padded with zeros to whole vectors. Everything lies in one piece of memory in the order
// of use. Immutable once made.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/packed_matrix.h"
#include "loci/compute/cpu/thread_pool.h"
#include "loci/model/model_spec.h"

namespace loci::cpu {

// Without a weight there is no norm.
struct CpuNorm {
  const float* weight = nullptr;  // [width, padded]
  const float* bias = nullptr;    // likewise, or nullptr

  bool present() const { return weight != nullptr; }
};

// A dense feed-forward part or one expert.
struct CpuFeedForward {
  PackedMatrix gate;  // no rows: only the activation of `up`
  PackedMatrix up, down;
};

struct CpuLayer {
  CpuNorm attention_norm, attention_post_norm, ffn_norm, ffn_post_norm;  // [hidden]
  PackedMatrix query, key, value;
  CpuNorm query_norm, key_norm;  // [head_dim]
  const float* sinks = nullptr;  // [heads] times log2(e), or nullptr
  PackedMatrix attention_output;
  PackedMatrix router;              // no rows: dense
  std::vector<CpuFeedForward> ffn;  // one, or one for each expert

  bool mixture() const { return router.rows > 0; }
};

class CpuWeights {
 public:
  // Packs with all threads of `pool`. Pages of a mapped file leave the process's memory as soon as they are
  // packed (rows of an embedding come back when they are read). Errors: kInvalidArgument naming the tensor;
  // kResourceExhausted.
  static Result<CpuWeights> pack(const ModelSpec& spec, ThreadPool& pool);

  const std::vector<CpuLayer>& layers() const { return layers_; }
  const CpuNorm& output_norm() const { return output_norm_; }
  const PackedMatrix& output() const { return output_; }
  std::uint64_t size_bytes() const { return memory_.size(); }

  // The forms that the inputs of the products need, over all layers.
  ActivationForms qkv_input, attention_output_input, ffn_input, down_input, output_input;
  ActivationForms router_input, expert_input, expert_down_input;
  // Number of outputs of gate and up: in dense layers, and in an expert. 0: there are none.
  std::uint32_t ffn_width = 0, expert_width = 0;

 private:
  std::vector<CpuLayer> layers_;
  CpuNorm output_norm_;
  PackedMatrix output_;
  Buffer memory_;
};

inline std::uint32_t padded_to_lanes(std::uint32_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

}  // namespace loci::cpu
