// SPDX-License-Identifier: Apache-2.0
// The products of a pass: what the threads share out, and what becomes of each result while it is in the
// first-level cache.
#include <algorithm>
#include <cstring>
#include <optional>

#include "loci/compute/cpu/pass_runner.h"

namespace loci::cpu {

namespace {

enum HeadKind { kQuery, kKey, kValue };

// Heads whose outputs are whole groups of 16 rows: one, or two where head_dim is an odd multiple of 8.
std::uint32_t unit_heads(std::uint32_t head_dim) { return head_dim % kLanes == 0 ? 1 : 2; }
std::uint32_t units_of(std::uint32_t heads, std::uint32_t head_dim) {
  return (heads + unit_heads(head_dim) - 1) / unit_heads(head_dim);
}

}  // namespace

void PassRunner::multiply(const PackedMatrix& matrix, std::uint32_t first, std::uint32_t count,
                          const Activations& input, std::uint32_t tile, float* outputs,
                          std::uint32_t stride) const {
  const std::uint32_t rows = input.layout().size(tile);
  const ProductKernel kernel = kernels_.product[static_cast<std::size_t>(matrix.type)][rows - 1];
  const std::uint8_t* activations = matrix.quantized() ? input.quantized_tile(tile) : input.float_tile(tile);
  alignas(64) float product[kMaxTileRows * kLanes];
  for (std::uint32_t group = first; group < first + count; ++group) {
    kernel(matrix.group(group), activations, matrix.steps, product);
    kernels_.place_rows(product, matrix.bias == nullptr ? nullptr : matrix.bias + group * kLanes, rows,
                        outputs + (group - first) * kLanes, stride);
  }
}

void PassRunner::place_heads(const float* outputs, std::uint32_t row, std::uint32_t first_head,
                             std::uint32_t heads, std::uint32_t layer, int kind) {
  const std::uint32_t head_dim = spec_.head_dim;
  const std::uint32_t position = plan_.position(*pass_, row);
  const std::uint32_t token = position % kBlockTokens;
  const CpuLayer& weights = weights_.layers()[layer];
  const CpuNorm norm = kind == kQuery ? weights.query_norm : kind == kKey ? weights.key_norm : CpuNorm{};
  const std::optional<std::uint32_t> rope = spec_.layers[layer].rope;
  const std::uint32_t padded = padded_to_lanes(head_dim);
  alignas(64) float head[kMaxHeadDim + kLanes];
  std::fill(head + head_dim, head + padded, 0.0f);  // kernels take whole vectors
  for (std::uint32_t i = 0; i < heads; ++i) {
    std::memcpy(head, outputs + i * head_dim, head_dim * sizeof(float));
    if (norm.present()) kernels_.rms_norm(head, norm.weight, head_dim, padded, spec_.norm_epsilon, head);
    if (kind != kValue && rope) kernels_.rope(head, ropes_[*rope].at(position));
    if (kind == kQuery) {
      kernels_.scale(head, head_dim, query_factor_,
                     queries_.as<float>() + std::size_t{row} * query_stride_ + (first_head + i) * head_dim);
      continue;
    }
    const BlockTable& table = pass_->spans[plan_.segment_of(row).span].tables[blocks_.group_of(layer)];
    if (position < table.write_from) continue;  // it is there
    const SlotId slot = table.blocks[position / kBlockTokens];
    const StateKernels& state = blocks_.layout().kernels(kernels_);
    const auto store = kind == kKey ? state.store_key : state.store_value;
    store(head, head_dim, blocks_.head(slot, layer, first_head + i), token);
  }
}

void PassRunner::project_heads(ThreadState& state, const PackedMatrix& matrix, std::uint32_t unit,
                               std::uint32_t layer, const Activations& input, int kind) {
  const std::uint32_t head_dim = spec_.head_dim;
  const std::uint32_t first_head = unit * unit_heads(head_dim);
  const std::uint32_t heads = std::min(unit_heads(head_dim), matrix.rows / head_dim - first_head);
  const std::uint32_t first = first_head * head_dim / kLanes;
  const std::uint32_t count = (heads * head_dim + kLanes - 1) / kLanes;
  state.outputs.resize(
      std::max<std::size_t>(state.outputs.size(), std::size_t{kMaxTileRows} * count * kLanes));
  const TileLayout& layout = input.layout();
  for (std::uint32_t tile = 0; tile < layout.tiles(); ++tile) {
    multiply(matrix, first, count, input, tile, state.outputs.data(), count * kLanes);
    for (std::uint32_t row = 0; row < layout.size(tile); ++row) {
      place_heads(state.outputs.data() + row * count * kLanes, layout.begin(tile) + row, first_head, heads,
                  layer, kind);
    }
  }
}

void PassRunner::project(std::uint32_t thread, std::uint32_t layer, const Activations& input) {
  const CpuLayer& weights = weights_.layers()[layer];
  const std::uint32_t queries = units_of(spec_.heads, spec_.head_dim),
                      keys = units_of(spec_.kv_heads, spec_.head_dim);
  WorkRange range;
  while (pool_.claim(thread, queries + 2 * keys, range)) {
    for (std::uint32_t unit = range.begin; unit < range.end; ++unit) {
      if (unit < queries) {
        project_heads(threads_[thread], weights.query, unit, layer, input, kQuery);
      } else if (unit < queries + keys) {
        project_heads(threads_[thread], weights.key, unit - queries, layer, input, kKey);
      } else {
        project_heads(threads_[thread], weights.value, unit - queries - keys, layer, input, kValue);
      }
    }
  }
}

void PassRunner::activate_unit(const CpuFeedForward& ffn, std::uint32_t unit, const Activations& input,
                               std::uint32_t begin, std::uint32_t end, Activations& down) const {
  constexpr std::uint32_t kGroups = kQuantBlock / kLanes;  // outputs that are quantised together
  alignas(64) float gate[kMaxTileRows * kQuantBlock], up[kMaxTileRows * kQuantBlock], values[kQuantBlock];
  const std::uint32_t first = unit * kGroups, count = std::min(kGroups, ffn.up.groups - first);
  const std::uint32_t outputs = std::min(kQuantBlock, ffn.up.rows - unit * kQuantBlock);
  const bool gated = ffn.gate.rows > 0;
  for (std::uint32_t tile = begin; tile < end; ++tile) {
    if (gated) multiply(ffn.gate, first, count, input, tile, gate, kQuantBlock);
    multiply(ffn.up, first, count, input, tile, up, kQuantBlock);
    for (std::uint32_t row = 0; row < input.layout().size(tile); ++row) {
      if (gated) {
        kernels_.gated[activation_](gate + row * kQuantBlock, up + row * kQuantBlock, count * kLanes, values);
      } else {
        kernels_.ungated[activation_](up + row * kQuantBlock, count * kLanes, values);
      }
      down.set_block(kernels_, tile, row, unit, values, outputs);
    }
  }
}

void PassRunner::feed_forward(std::uint32_t thread, const CpuFeedForward& ffn, const Activations& input) {
  WorkRange range;
  while (pool_.claim(thread, (ffn.up.rows + kQuantBlock - 1) / kQuantBlock, range)) {
    for (std::uint32_t unit = range.begin; unit < range.end; ++unit)
      activate_unit(ffn, unit, input, 0, input.layout().tiles(), down_input_);
  }
}

void PassRunner::write_product(std::uint32_t thread, const PackedMatrix& matrix, const Activations& input,
                               float* out) {
  const TileLayout& layout = input.layout();
  WorkRange range;
  while (pool_.claim(thread, matrix.groups, range)) {
    for (std::uint32_t tile = 0; tile < layout.tiles(); ++tile) {
      multiply(matrix, range.begin, range.end - range.begin, input, tile,
               out + std::size_t{layout.begin(tile)} * hidden_stride_ + range.begin * kLanes, hidden_stride_);
    }
  }
}

void PassRunner::run_output(std::uint32_t thread) {
  const PackedMatrix& matrix = weights_.output();
  const Activations& input = prepare_output(thread);
  const TileLayout& layout = input.layout();
  alignas(64) float outputs[kMaxTileRows * kLanes];
  WorkRange range;
  while (pool_.claim(thread, matrix.groups, range)) {
    for (std::uint32_t tile = 0; tile < layout.tiles(); ++tile) {
      for (std::uint32_t group = range.begin; group < range.end; ++group) {
        multiply(matrix, group, 1, input, tile, outputs, kLanes);
        if (spec_.output_softcap != 0) {
          kernels_.softcap(outputs, layout.size(tile) * kLanes, spec_.output_softcap, outputs);
        }
        const std::uint32_t lanes = std::min(kLanes, matrix.rows - group * kLanes);
        for (std::uint32_t row = 0; row < layout.size(tile); ++row) {
          std::memcpy(
              logits_.as<float>() + std::size_t{layout.begin(tile) + row} * spec_.vocabulary + group * kLanes,
              outputs + row * kLanes, lanes * sizeof(float));
        }
      }
    }
  }
}

}  // namespace loci::cpu
