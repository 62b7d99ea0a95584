// A model's weights as the CPU backend holds them: matrices packed, norms and biases as floats padded
// with zeros to whole vectors, all in one piece of memory in the order of use. Immutable once made.
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

struct CpuLayer {
  const float* attention_norm = nullptr;  // [hidden, padded]
  const float* ffn_norm = nullptr;        // [hidden, padded]
  PackedMatrix query, key, value;
  PackedMatrix attention_output;
  PackedMatrix ffn_gate, ffn_up, ffn_down;
};

class CpuWeights {
 public:
  // Packs with all threads of `pool`; the pages of the file that are packed are given back to the
  // system, but for an embedding that is also read by row. Errors: kInvalidArgument naming the tensor;
  // kResourceExhausted.
  static Result<CpuWeights> pack(const ModelSpec& spec, ThreadPool& pool);

  const std::vector<CpuLayer>& layers() const { return layers_; }
  const float* output_norm() const { return output_norm_; }
  const PackedMatrix& output() const { return output_; }
  std::uint64_t size_bytes() const { return memory_.size(); }

  // What the inputs of the products must be, over all layers.
  ActivationForms qkv_input, attention_output_input, ffn_input, down_input, output_input;

 private:
  std::vector<CpuLayer> layers_;
  const float* output_norm_ = nullptr;
  PackedMatrix output_;
  Buffer memory_;
};

inline std::uint32_t padded_to_lanes(std::uint32_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

}  // namespace loci::cpu
