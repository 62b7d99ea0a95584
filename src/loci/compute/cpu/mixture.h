// SPDX-License-Identifier: Apache-2.0
// Chooses which experts compute which rows of a pass: for each row the `uses` experts with the best scores of
// the router. The rows of each expert become tiles, so that an expert's weights are read once and unused
// experts cost nothing.
//
// resize() sets the sizes. Different threads may call choose() for different rows; one thread calls gather().
#pragma once

#include <cstdint>
#include <vector>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/kernel_table.h"

namespace loci::cpu {

class Mixture {
 public:
  // For each row, `uses` of `experts` take part. `normalised`: their weights are the softmax over these
  // experts, else over all.
  Mixture(std::uint32_t experts, std::uint32_t uses, bool normalised);

  void resize(std::uint32_t rows);

  // The router's scores [row][stride].
  float* scores(std::uint32_t row) { return scores_.data() + std::size_t{row} * stride_; }
  std::uint32_t stride() const { return stride_; }

  // Chooses the best experts of a row and their weights. Of equal scores the lower index wins; NaN loses.
  void choose(const KernelTable& kernels, std::uint32_t row);

  // Sorts the choices of rows [0, rows) by expert, then by row.
  void gather(const KernelTable& kernels, std::uint32_t rows);
  struct Used {
    std::uint32_t expert = 0;
    std::uint32_t first_tile = 0, end_tile = 0;  // tiles of layout()
  };
  const std::vector<Used>& used() const { return used_; }
  const TileLayout& layout() const { return layout_; }
  // For each gathered row: the row that it comes from, and the expert's weight for it.
  const std::vector<std::uint32_t>& sources() const { return sources_; }
  const std::vector<float>& weights() const { return weights_; }

 private:
  struct Choice {
    std::uint32_t expert = 0;
    float weight = 0;
  };

  const std::uint32_t experts_, uses_;
  const bool normalised_;
  const std::uint32_t stride_;
  std::vector<float> scores_;
  std::vector<Choice> choices_;  // [row][uses]
  std::vector<Used> used_;
  TileLayout layout_;
  std::vector<std::uint32_t> sources_;
  std::vector<float> weights_;
};

}  // namespace loci::cpu
