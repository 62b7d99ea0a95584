// SPDX-License-Identifier: Apache-2.0
// Queues the kernels of a pass: embeddings of tokens, layers, logits, samples. Kernels read what the pass
// consists of from the descriptors in device memory; only the sizes of launches are known here. So the same
// calls issue a pass directly or are captured as a graph.
//
// A layer's operations, each over all rows:
//   residual += what is left of the layer before, norm | query, key, value product | norm of heads, rotation,
//   K and V into the blocks | attention | output product | residual, norm | gate and up product | activation
//   | down product
// If no norm comes between a product and the residual stream, the product adds itself to it. Else its result
// is kept as a change, which the next reader of the residual stream adds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "loci/compute/cuda/cuda_pass_buffers.h"
#include "loci/compute/cuda/cuda_pass_plan.h"
#include "loci/compute/cuda/cuda_weights.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/products.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

// The sizes of a pass's launches.
struct PassLaunch {
  const DescriptorLayout* layout = nullptr;
  std::vector<std::uint32_t> rows_in_layer, rows_after;  // [layer]
  std::vector<std::uint32_t> attention_of;               // [layer]: index in DescriptorLayout::attentions
  std::vector<std::uint32_t> group_of;                   // [layer]
  std::uint32_t wanted_rows = 0;
  std::uint32_t samples_max = 0;
  bool feeds = false;
  std::uint32_t copies[kLayerGroupsMax] = {};
  std::vector<LayerState> states;  // [layer]
  // Where the input of each layer's first product is kept, elements [layer][rows_in_layer][hidden]; null: it
  // is in PassBuffers::normed, which the next one overwrites.
  std::byte* inputs = nullptr;
};

// Calls between the operations of a pass; a graph has none.
struct PassHooks {
  // Called when the pass's copies (BlockCopy) are queued.
  std::function<void()> copied;
  // Called when the input of the layer's first product is in `normed`, elements [rows_in_layer][hidden].
  std::function<void(std::uint32_t layer, const std::byte* normed)> hidden;
  // Called before `normed` is overwritten.
  std::function<void()> overwrite;
  // Called before the layer's new keys and values are written and its attention begins: by then its blocks
  // must have arrived.
  std::function<void(std::uint32_t layer)> await;
  // Called when the logits of wanted rows [begin, end) are there. They stay until this returns (in the
  // stream's order).
  std::function<void(std::uint32_t begin, std::uint32_t end, const float* logits)> logits;
};

class PassLayers {
 public:
  // All arguments must outlive this.
  PassLayers(const ModelSpec& spec, const CudaWeights& weights, Products& products, PassBuffers& buffers,
             ElementType element, bool deterministic)
      : spec_(spec),
        weights_(weights),
        products_(products),
        buffers_(buffers),
        element_(element),
        deterministic_(deterministic) {}

  // Logits are computed for `logits_rows` rows at a time.
  void issue(const PassLaunch& launch, const PassHooks& hooks, std::uint32_t logits_rows, Stream& stream);

 private:
  // Changes that are to be added to the residual stream before it is read.
  struct Changes {
    const float* first = nullptr;
    const float* second = nullptr;
    RowNorm post, post2;
  };

  template <class T>
  T* at(std::uint32_t offset) const {
    return reinterpret_cast<T*>(buffers_.descriptors.data() + offset);
  }
  void begin(const PassLaunch& launch, const PassHooks& hooks, Stream& stream);
  void run_layer(const PassLaunch& launch, const PassHooks& hooks, std::uint32_t layer, Stream& stream);
  void prepare_attention(const PassHooks& hooks, const CudaLayer& weights, std::uint32_t rows,
                         std::byte* input, Stream& stream);
  void place(const PassLaunch& launch, std::uint32_t layer, Stream& stream);
  void attend_layer(const PassLaunch& launch, std::uint32_t layer, Stream& stream);
  void feed_forward(const CudaLayer& weights, const void* input, std::uint32_t rows, Stream& stream);
  void run_mixture(const CudaLayer& weights, const void* input, std::uint32_t rows, Stream& stream);
  void run_output(const PassLaunch& launch, const PassHooks& hooks, std::uint32_t logits_rows,
                  Stream& stream);
  void sample_rows(const PassLaunch& launch, Stream& stream);
  // Adds changes_ to the residual and clears them. Then writes its norm into `normed`, and that of `beside`,
  // if given, into `normed_beside`.
  void add_changes(const PassHooks& hooks, const RowNorm& norm, const RowNorm* beside, std::uint32_t rows,
                   std::byte* normed, Stream& stream);
  void multiply(const CudaProjection& projection, const void* input, std::uint32_t rows, void* output,
                ProductOutput mode, Stream& stream);
  // Adds the product to the residual stream; or, if a norm comes between, writes it into `change`, to be
  // added later.
  void multiply_and_add(const CudaProjection& projection, const void* input, std::uint32_t rows,
                        const RowNorm& post, Memory& change, Stream& stream);
  void leave(const float* change, const RowNorm& post);

  const ModelSpec& spec_;
  const CudaWeights& weights_;
  Products& products_;
  PassBuffers& buffers_;
  const ElementType element_;
  const bool deterministic_;
  Changes changes_;
};

}  // namespace loci::cuda
