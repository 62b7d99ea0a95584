// SPDX-License-Identifier: Apache-2.0
// Makes keys and values of hidden states (HCache §3.2) on the device: the product of K and V with captured
// rows, biases, norms of heads, rotation, rounding, each as in a pass that computes the tokens. The rows are
// the elements that such a pass's product read. So the bits are the same wherever products have one order of
// sums (in deterministic mode); else they differ as those of two batches do.
//
// The rows of many blocks of a layer are staged one after the other and multiplied at once:
//
//   slot 7   [rows of positions  0 .. 31 | unused]       stage            product          slot 7   [K | V]
//   slot 2   [rows of positions 32 .. 63 | unused]  ->   [64 rows]   ->   [64 rows of  ->  slot 2   [K | V]
//                                                                         K, V]
//
// The slice of a layer is source and target, so there is a stage. It has a fixed size: more blocks take
// several products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "loci/base/status.h"
#include "loci/compute/cuda/block_layout.h"
#include "loci/compute/cuda/cuda_weights.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/products.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

// Thread-compatible; one stream at a time, because there is one stage.
class HiddenProjection {
 public:
  // The stage has room for `rows` rows, rounded down to whole blocks; at least one. `products` must serve as
  // many. All references must outlive this. Errors: kResourceExhausted.
  static Result<std::unique_ptr<HiddenProjection>> make(const ModelSpec& spec, const CudaWeights& weights,
                                                        const Device& device, Products& products,
                                                        ElementType element, std::uint32_t rows);

  // Queues the projection of a layer of these blocks, each of which is named once. Their rows lie at the
  // beginning of the layer's slices. Returns how many of the blocks it was queued for, the first ones: fewer
  // than all if the device refused a kernel, which `stream` notes. The rows of the others stay as they are.
  // What `stream` noted before does not count.
  std::size_t project(std::uint32_t layer, const LayerState& state, std::span<const HiddenBlock> blocks,
                      Stream& stream);

 private:
  HiddenProjection(const ModelSpec& spec, const CudaWeights& weights, Products& products, ElementType element,
                   std::uint32_t blocks_max)
      : spec_(spec), weights_(weights), products_(products), element_(element), blocks_max_(blocks_max) {}
  // Of as many blocks as the stage has room for. Not ok: a kernel was refused, and no row was replaced.
  Status project_some(std::uint32_t layer, const LayerState& state, std::span<const HiddenBlock> blocks,
                      Stream& stream);

  const ModelSpec& spec_;
  const CudaWeights& weights_;
  Products& products_;
  const ElementType element_;
  const std::uint32_t blocks_max_;  // at once
  Memory rows_;                     // elements [rows][hidden]
  Memory keys_values_;              // elements [rows][2 * kv_heads * head_dim]
  Memory positions_, places_;       // u32 [rows]
};

}  // namespace loci::cuda
