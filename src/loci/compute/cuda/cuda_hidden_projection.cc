// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_hidden_projection.h"

#include <algorithm>
#include <utility>

#include "loci/compute/pass.h"

namespace loci::cuda {

Result<std::unique_ptr<HiddenProjection>> HiddenProjection::make(const ModelSpec& spec,
                                                                 const CudaWeights& weights,
                                                                 const Device& device, Products& products,
                                                                 ElementType element, std::uint32_t rows) {
  constexpr std::uint64_t kElement = 2;
  const std::uint32_t blocks = std::clamp(rows / kBlockTokens, 1u, StageArguments::kBlocksMax);
  std::unique_ptr<HiddenProjection> made(new HiddenProjection(spec, weights, products, element, blocks));
  const std::uint64_t staged = std::uint64_t{blocks} * kBlockTokens;
  for (const auto& [memory, bytes] : {std::pair(&made->rows_, staged * spec.hidden * kElement),
                                      {&made->keys_values_, staged * 2 * spec.kv_width() * kElement},
                                      {&made->positions_, staged * sizeof(std::uint32_t)},
                                      {&made->places_, staged * sizeof(std::uint32_t)}}) {
    LOCI_ASSIGN_OR_RETURN(
        *memory, Memory::allocate(device, MemoryKind::kDevice, bytes,
                                  "what projecting hidden states works in (option max_batch_tokens)"));
  }
  return made;
}

std::size_t HiddenProjection::project(std::uint32_t layer, const LayerState& state,
                                      std::span<const HiddenBlock> blocks, Stream& stream) {
  Status older = stream.take_failure(), refused;
  std::size_t done = 0;
  while (done < blocks.size()) {
    const auto now = blocks.subspan(done, std::min<std::size_t>(blocks.size() - done, blocks_max_));
    refused = project_some(layer, state, now, stream);
    if (!refused.ok()) break;
    done += now.size();
  }
  stream.note_failure(std::move(older));  // the first one is kept
  stream.note_failure(std::move(refused));
  return done;
}

// Each kernel reads what the one before has written, and only the last one writes to the blocks.
Status HiddenProjection::project_some(std::uint32_t layer, const LayerState& state,
                                      std::span<const HiddenBlock> blocks, Stream& stream) {
  StageArguments stage;
  stage.state = state;
  stage.block_bytes = std::uint64_t{kBlockTokens} * spec_.hidden * 2;
  stage.rows = rows_.data();
  stage.positions = positions_.as<std::uint32_t>();
  stage.places = places_.as<std::uint32_t>();
  stage.count = static_cast<std::uint32_t>(blocks.size());
  std::copy(blocks.begin(), blocks.end(), stage.blocks);
  stage_hidden(stage, stream);
  LOCI_RETURN_IF_ERROR(stream.take_failure());
  const CudaProjection& qkv = weights_.layers()[layer].qkv;
  ProductArguments product;
  product.matrix = &qkv.matrix;
  product.input = rows_.data();
  product.input_stride = spec_.hidden;
  product.rows = stage.count * kBlockTokens;
  product.output = keys_values_.data();
  product.output_stride = product.outputs = 2 * spec_.kv_width();
  product.first_output = spec_.heads * spec_.head_dim;
  product.bias = qkv.bias;
  products_.multiply(product, stream);
  LOCI_RETURN_IF_ERROR(stream.take_failure());
  PlaceArguments place = place_arguments(spec_, weights_, element_, layer);
  place.qkv = keys_values_.data();
  place.state = state;
  place.positions = positions_.as<std::uint32_t>();
  place.places = places_.as<std::uint32_t>();
  place.rows = product.rows;
  place_rows(place, stream);
  return stream.take_failure();
}

}  // namespace loci::cuda
