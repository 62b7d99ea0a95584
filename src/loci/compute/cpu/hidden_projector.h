// SPDX-License-Identifier: Apache-2.0
// Makes keys and values from hidden states (HCache §3.2): the products of K and V with captured rows, biases,
// norms of heads, rotation, rounding to the state's type. Each step is the same as in a pass that computes
// the token, and the captured rows are the bytes that such a pass's products consumed. So the bits are the
// same.
//
// In a pass all threads share the work (project_unit()); for a mover one thread projects a layer of a block
// (project()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/cpu_weights.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/rope_table.h"
#include "loci/compute/cpu/state_layout.h"
#include "loci/model/model_spec.h"

namespace loci::cpu {

enum class HeadKind : std::uint8_t { kQuery, kKey, kValue };

// How many heads have outputs that are whole groups of 16 rows: one, or two if head_dim is an odd multiple of
// 8.
inline std::uint32_t unit_heads(std::uint32_t head_dim) { return head_dim % kLanes == 0 ? 1 : 2; }
inline std::uint32_t units_of(std::uint32_t heads, std::uint32_t head_dim) {
  return (heads + unit_heads(head_dim) - 1) / unit_heads(head_dim);
}

// Multiplies one tile with groups [first, first + count), adds biases, and writes the results from `outputs`
// on.
void multiply_tile(const KernelTable& kernels, const PackedMatrix& matrix, std::uint32_t first,
                   std::uint32_t count, const Activations& input, std::uint32_t tile, float* outputs,
                   std::uint32_t stride);

// The steps between a head's product and its place in the state: norm and rotation. `head`: [head_dim], with
// room for whole vectors after it.
struct HeadSteps {
  const ModelSpec& spec;
  const KernelTable& kernels;
  const std::vector<RopeTable>& ropes;
  void apply(const CpuLayer& weights, std::uint32_t layer, HeadKind kind, std::uint32_t position,
             float* head) const;
};

// A layer of a block, and the position of its first token.
struct ProjectedSlice {
  std::uint8_t* slice = nullptr;
  std::uint32_t position = 0;
};

// Thread-safe.
class HiddenProjector {
 public:
  // All arguments must outlive the projector.
  HiddenProjector(const ModelSpec& spec, const CpuWeights& weights, const KernelTable& kernels,
                  const StateLayout& layout)
      : spec_(spec), weights_(weights), kernels_(kernels), layout_(layout) {}

  std::uint32_t units() const { return 2 * units_of(spec_.kv_heads, spec_.head_dim); }
  // Projects one unit of heads, of keys or of values, for all blocks: row 32 * i + t of `input` is token t of
  // slices[i]. `ropes` must cover the positions; `outputs` is working memory.
  void project_unit(std::uint32_t layer, std::uint32_t unit, const Activations& input,
                    std::span<const ProjectedSlice> slices, const std::vector<RopeTable>& ropes,
                    std::vector<float>& outputs) const;
  // Turns all layers of the slot up to this one that came as hidden states into slices.
  void project_up_to(BlockStorage& blocks, SlotId slot, std::uint32_t layer) const;
  // Projects one layer of a block from `rows` [token][row]. `slice` may be the memory of the rows.
  void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
               std::uint8_t* slice) const;

 private:
  const ModelSpec& spec_;
  const CpuWeights& weights_;
  const KernelTable& kernels_;
  const StateLayout& layout_;
  mutable Mutex mutex_;
  mutable std::vector<RopeTable> ropes_ GUARDED_BY(mutex_);  // of project()
};

}  // namespace loci::cpu
