// SPDX-License-Identifier: Apache-2.0
// A layer's mixture of experts. Phases (| is a barrier):
//   router product | choose | gather | quantise each expert's rows | gate and up products of all used
//   experts | down products, added up in the order of experts
// With few rows one thread chooses and gathers.
#include <algorithm>

#include "loci/compute/cpu/cpu_pass_runner.h"

namespace loci::cpu {

void CpuPassRunner::score_experts(std::uint32_t thread, const PackedMatrix& router,
                                  const Activations& input) {
  const TileLayout& layout = input.layout();
  WorkRange range;
  while (pool_.claim(thread, router.groups * layout.tiles(), range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const std::uint32_t tile = i / router.groups, group = i % router.groups;
      multiply(router, group, 1, input, tile, mixture_.scores(layout.begin(tile)) + group * kLanes,
               mixture_.stride());
    }
  }
}

void CpuPassRunner::gather_rows(std::uint32_t thread, std::uint32_t rows) {
  const auto gather = [&] {
    mixture_.gather(kernels_, rows);
    expert_input_.resize(mixture_.layout());
    expert_down_.resize(mixture_.layout());
  };
  if (rows <= kOwnRows) {
    if (thread == 0) {
      for (std::uint32_t row = 0; row < rows; ++row) mixture_.choose(kernels_, row);
      gather();
    }
  } else {
    WorkRange range;
    while (pool_.claim(thread, rows, range)) {
      for (std::uint32_t row = range.begin; row < range.end; ++row) mixture_.choose(kernels_, row);
    }
    pool_.barrier(thread);
    if (thread == 0) gather();
  }
  pool_.barrier(thread);
  const ThreadState& state = threads_[thread];
  const float* normalised = state.own ? state.normalised.data() : normalised_.as<float>();
  WorkRange range;
  while (pool_.claim(thread, mixture_.layout().rows(), range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      expert_input_.set_row(kernels_, i, normalised + std::size_t{mixture_.sources()[i]} * hidden_stride_);
    }
  }
  pool_.barrier(thread);
}

void CpuPassRunner::activate_experts(std::uint32_t thread, const CpuLayer& layer) {
  const std::uint32_t units = (weights_.expert_width + kQuantBlock - 1) / kQuantBlock;
  WorkRange range;
  while (pool_.claim(thread, static_cast<std::uint32_t>(mixture_.used().size()) * units, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const Mixture::Used& used = mixture_.used()[i / units];
      activate_unit(layer.ffn[used.expert], i % units, expert_input_, used.first_tile, used.end_tile,
                    expert_down_);
    }
  }
  pool_.barrier(thread);
}

void CpuPassRunner::add_experts(std::uint32_t thread, const CpuLayer& layer, std::uint32_t rows) {
  const TileLayout& layout = expert_down_.layout();
  alignas(64) float outputs[kMaxTileRows * kLanes];
  WorkRange range;
  while (pool_.claim(thread, layer.ffn.front().down.groups, range)) {
    for (std::uint32_t group = range.begin; group < range.end; ++group) {
      float* sums = ffn_change_.as<float>() + group * kLanes;
      for (std::uint32_t row = 0; row < rows; ++row)
        std::fill_n(sums + std::size_t{row} * hidden_stride_, kLanes, 0.0f);
      for (const Mixture::Used& used : mixture_.used()) {
        for (std::uint32_t tile = used.first_tile; tile < used.end_tile; ++tile) {
          multiply(layer.ffn[used.expert].down, group, 1, expert_down_, tile, outputs, kLanes);
          kernels_.add_weighted_rows(outputs, layout.size(tile),
                                     mixture_.weights().data() + layout.begin(tile),
                                     mixture_.sources().data() + layout.begin(tile), sums, hidden_stride_);
        }
      }
    }
  }
}

void CpuPassRunner::run_mixture(std::uint32_t thread, const CpuLayer& layer, const Activations& router_input,
                                std::uint32_t rows) {
  score_experts(thread, layer.router, router_input);
  pool_.barrier(thread);
  gather_rows(thread, rows);
  activate_experts(thread, layer);
  add_experts(thread, layer, rows);
}

}  // namespace loci::cpu
