// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/hidden_projector.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "loci/base/check.h"
#include "loci/compute/backend.h"

namespace loci::cpu {

void multiply_tile(const KernelTable& kernels, const PackedMatrix& matrix, std::uint32_t first,
                   std::uint32_t count, const Activations& input, std::uint32_t tile, float* outputs,
                   std::uint32_t stride) {
  const std::uint32_t rows = input.layout().size(tile);
  const ProductKernel kernel = kernels.product[static_cast<std::size_t>(matrix.type)][rows - 1];
  const std::uint8_t* activations = matrix.quantized() ? input.quantized_tile(tile) : input.float_tile(tile);
  alignas(64) float product[kMaxTileRows * kLanes];
  for (std::uint32_t group = first; group < first + count; ++group) {
    kernel(matrix.group(group), activations, matrix.steps, product);
    kernels.place_rows(product, matrix.bias == nullptr ? nullptr : matrix.bias + group * kLanes, rows,
                       outputs + (group - first) * kLanes, stride);
  }
}

void HeadSteps::apply(const CpuLayer& weights, std::uint32_t layer, HeadKind kind, std::uint32_t position,
                      float* head) const {
  if (kind == HeadKind::kValue) return;
  const CpuNorm& norm = kind == HeadKind::kQuery ? weights.query_norm : weights.key_norm;
  if (norm.present()) {
    kernels.rms_norm(head, norm.weight, spec.head_dim, padded_to_lanes(spec.head_dim), spec.norm_epsilon,
                     head);
  }
  if (const std::optional<std::uint32_t> rope = spec.layers[layer].rope)
    kernels.rope(head, ropes[*rope].at(position));
}

void HiddenProjector::project_unit(std::uint32_t layer, std::uint32_t unit, const Activations& input,
                                   std::span<const ProjectedSlice> slices,
                                   const std::vector<RopeTable>& ropes, std::vector<float>& outputs) const {
  const std::uint32_t head_dim = spec_.head_dim, of_keys = units_of(spec_.kv_heads, head_dim);
  const HeadKind kind = unit < of_keys ? HeadKind::kKey : HeadKind::kValue;
  const CpuLayer& weights = weights_.layers()[layer];
  const PackedMatrix& matrix = kind == HeadKind::kKey ? weights.key : weights.value;
  const std::uint32_t first_head = unit % of_keys * unit_heads(head_dim);
  const std::uint32_t heads = std::min(unit_heads(head_dim), spec_.kv_heads - first_head);
  const std::uint32_t first = first_head * head_dim / kLanes;
  const std::uint32_t stride = (heads * head_dim + kLanes - 1) / kLanes * kLanes;
  outputs.resize(std::max<std::size_t>(outputs.size(), std::size_t{kMaxTileRows} * stride));
  const HeadSteps steps{spec_, kernels_, ropes};
  const StateKernels& state = layout_.kernels(kernels_);
  const auto store = kind == HeadKind::kKey ? state.store_key : state.store_value;
  alignas(64) float head[kMaxHeadDim + kLanes];
  std::fill(head + head_dim, head + padded_to_lanes(head_dim), 0.0f);  // kernels take whole vectors
  const TileLayout& tiles = input.layout();
  for (std::uint32_t tile = 0; tile < tiles.tiles(); ++tile) {
    multiply_tile(kernels_, matrix, first, stride / kLanes, input, tile, outputs.data(), stride);
    for (std::uint32_t i = 0; i < tiles.size(tile); ++i) {
      const std::uint32_t row = tiles.begin(tile) + i, token = row % kBlockTokens;
      const ProjectedSlice& to = slices[row / kBlockTokens];
      for (std::uint32_t h = 0; h < heads; ++h) {
        std::memcpy(head, outputs.data() + i * stride + h * head_dim, head_dim * sizeof(float));
        steps.apply(weights, layer, kind, to.position + token, head);
        store(head, head_dim, layout_.head(to.slice, first_head + h), token);
      }
    }
  }
}

void HiddenProjector::project_up_to(BlockStorage& blocks, SlotId slot, std::uint32_t layer) const {
  while (const std::optional<std::uint32_t> next = blocks.claim_hidden(slot, layer)) {
    const std::uint64_t row_bytes = Activations(spec_.hidden, weights_.qkv_input).stored_row_bytes();
    std::uint8_t* slice = blocks.slice(slot, *next);
    project(*next, blocks.position(slot, *next),
            {reinterpret_cast<const std::byte*>(slice), kBlockTokens * row_bytes}, slice);
    blocks.projected(slot, *next);
  }
}

void HiddenProjector::project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
                              std::uint8_t* slice) const {
  Activations input(spec_.hidden, weights_.qkv_input);
  input.resize(kBlockTokens, kernels_);
  const std::uint64_t row_bytes = input.stored_row_bytes();
  LOCI_CHECK(rows.size() == kBlockTokens * row_bytes, "a block's rows");
  for (std::uint32_t token = 0; token < kBlockTokens; ++token)
    input.load_row(kernels_, token, rows.subspan(token * row_bytes, row_bytes));
  const ProjectedSlice to{slice, position};
  std::vector<float> outputs;
  const MutexLock lock(mutex_);
  if (ropes_.empty()) {
    for (const RopeSpec& rope : spec_.ropes) ropes_.emplace_back(rope);
  }
  for (RopeTable& rope : ropes_) rope.extend(position + kBlockTokens);
  for (std::uint32_t unit = 0; unit < units(); ++unit)
    project_unit(layer, unit, input, {&to, 1}, ropes_, outputs);
}

}  // namespace loci::cpu
