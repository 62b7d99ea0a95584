// SPDX-License-Identifier: Apache-2.0
// The products of a pass: how threads divide them, and how each result is used while it is in the first-level
// cache.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "loci/compute/cpu/cpu_pass_runner.h"

namespace loci::cpu {

void CpuPassRunner::multiply(const PackedMatrix& matrix, std::uint32_t first, std::uint32_t count,
                             const Activations& input, std::uint32_t tile, float* outputs,
                             std::uint32_t stride) const {
  multiply_tile(kernels_, matrix, first, count, input, tile, outputs, stride);
}

void CpuPassRunner::place_heads(const float* outputs, std::uint32_t row, std::uint32_t first_head,
                                std::uint32_t heads, std::uint32_t layer, HeadKind kind) {
  const std::uint32_t head_dim = spec_.head_dim;
  const std::uint32_t position = plan_.position(*pass_, row);
  const std::uint32_t token = position % kBlockTokens;
  const CpuLayer& weights = weights_.layers()[layer];
  const HeadSteps steps{spec_, kernels_, ropes_};
  alignas(64) float head[kMaxHeadDim + kLanes];
  std::fill(head + head_dim, head + padded_to_lanes(head_dim), 0.0f);  // kernels take whole vectors
  for (std::uint32_t i = 0; i < heads; ++i) {
    std::memcpy(head, outputs + i * head_dim, head_dim * sizeof(float));
    steps.apply(weights, layer, kind, position, head);
    if (kind == HeadKind::kQuery) {
      kernels_.scale(head, head_dim, query_factor_,
                     queries_.as<float>() + std::size_t{row} * query_stride_ + (first_head + i) * head_dim);
      continue;
    }
    const BlockTable& table = pass_->spans[plan_.segment_of(row).span].tables[blocks_.group_of(layer)];
    if (position < table.write_from) continue;  // it is there
    const SlotId slot = table.blocks[position / kBlockTokens];
    const StateKernels& state = blocks_.layout().kernels(kernels_);
    const auto store = kind == HeadKind::kKey ? state.store_key : state.store_value;
    store(head, head_dim, blocks_.head(slot, layer, first_head + i), token);
  }
}

void CpuPassRunner::project_heads(ThreadState& state, const PackedMatrix& matrix, std::uint32_t unit,
                                  std::uint32_t layer, const Activations& input, HeadKind kind) {
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

void CpuPassRunner::project(std::uint32_t thread, std::uint32_t layer, const Activations& input) {
  const CpuLayer& weights = weights_.layers()[layer];
  const std::uint32_t queries = units_of(spec_.heads, spec_.head_dim),
                      keys = units_of(spec_.kv_heads, spec_.head_dim);
  WorkRange range;
  while (pool_.claim(thread, queries + 2 * keys, range)) {
    for (std::uint32_t unit = range.begin; unit < range.end; ++unit) {
      if (unit < queries) {
        project_heads(threads_[thread], weights.query, unit, layer, input, HeadKind::kQuery);
      } else if (unit < queries + keys) {
        project_heads(threads_[thread], weights.key, unit - queries, layer, input, HeadKind::kKey);
      } else {
        project_heads(threads_[thread], weights.value, unit - queries - keys, layer, input, HeadKind::kValue);
      }
    }
  }
}

void CpuPassRunner::take_arrivals(std::uint32_t thread, std::uint32_t layer) {
  if (thread == 0) begin_awaiting(layer);
  bool are_left = true;
  while (are_left) {
    if (thread == 0) await_blocks(layer);
    pool_.barrier(thread);
    are_left = !awaited_.empty();
    LOCI_CHECK(!are_left || !hidden_.empty(), "nobody reads on while the first thread awaits more");
    if (!hidden_.empty()) project_hidden(thread, layer);
  }
}

void CpuPassRunner::project_hidden(std::uint32_t thread, std::uint32_t layer) {
  const std::uint64_t row_bytes = hidden_row_bytes();
  const auto begun = std::chrono::steady_clock::now();
  const auto rows = static_cast<std::uint32_t>(hidden_.size()) * kBlockTokens;
  if (thread == 0) hidden_input_.resize(rows, kernels_);
  pool_.barrier(thread);
  WorkRange range;
  while (pool_.claim(thread, rows, range)) {
    for (std::uint32_t row = range.begin; row < range.end; ++row) {
      const std::uint8_t* from =
          hidden_[row / kBlockTokens].to.slice + std::uint64_t{row % kBlockTokens} * row_bytes;
      hidden_input_.load_row(kernels_, row, {reinterpret_cast<const std::byte*>(from), row_bytes});
    }
  }
  pool_.barrier(thread);  // from here on the rows' place is the slice's
  std::vector<ProjectedSlice> to;
  for (const HiddenSlice& slice : hidden_) to.push_back(slice.to);
  while (pool_.claim(thread, projector_.units(), range)) {
    for (std::uint32_t unit = range.begin; unit < range.end; ++unit)
      projector_.project_unit(layer, unit, hidden_input_, to, ropes_, threads_[thread].outputs);
  }
  pool_.barrier(thread);
  if (thread == 0) {
    for (const HiddenSlice& slice : hidden_) blocks_.projected(slice.slot, layer);
    projected_.slices += static_cast<std::uint32_t>(hidden_.size());
    projected_.took += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun).count();
    hidden_.clear();
  }
  pool_.barrier(thread);
}

void CpuPassRunner::activate_unit(const CpuFeedForward& ffn, std::uint32_t unit, const Activations& input,
                                  std::uint32_t begin, std::uint32_t end, Activations& down) const {
  constexpr std::uint32_t kGroups = kQuantBlock / kLanes;  // outputs that are quantised together
  alignas(64) float gate[kMaxTileRows * kQuantBlock], up[kMaxTileRows * kQuantBlock],
      values[kMaxTileRows * kQuantBlock];
  const std::uint32_t first = unit * kGroups, count = std::min(kGroups, ffn.up.groups - first);
  const std::uint32_t outputs = std::min(kQuantBlock, ffn.up.rows - unit * kQuantBlock);
  const bool gated = ffn.gate.rows > 0;
  for (std::uint32_t tile = begin; tile < end; ++tile) {
    if (gated) multiply(ffn.gate, first, count, input, tile, gate, kQuantBlock);
    multiply(ffn.up, first, count, input, tile, up, kQuantBlock);
    for (std::uint32_t row = 0; row < input.layout().size(tile); ++row) {
      const std::uint32_t at = row * kQuantBlock;
      if (gated) {
        kernels_.gated[activation_](gate + at, up + at, count * kLanes, values + at);
      } else {
        kernels_.ungated[activation_](up + at, count * kLanes, values + at);
      }
    }
    down.set_block(kernels_, tile, unit, values, outputs);
  }
}

void CpuPassRunner::feed_forward(std::uint32_t thread, const CpuFeedForward& ffn, const Activations& input) {
  WorkRange range;
  while (pool_.claim(thread, (ffn.up.rows + kQuantBlock - 1) / kQuantBlock, range)) {
    for (std::uint32_t unit = range.begin; unit < range.end; ++unit)
      activate_unit(ffn, unit, input, 0, input.layout().tiles(), down_input_);
  }
}

void CpuPassRunner::write_product(std::uint32_t thread, const PackedMatrix& matrix, const Activations& input,
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

void CpuPassRunner::run_output(std::uint32_t thread) {
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
