// SPDX-License-Identifier: Apache-2.0
// Which experts compute which rows of a pass: the best `uses` of each row by the router's scores, as tiles
// of rows for each expert, so that an expert's weights are read once and experts that nobody uses cost
// nothing.
//
// Sized by resize(). choose() may be called for different rows by different threads; gather() by one.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/kernel_table.h"

namespace loci::cpu {

class Mixture {
 public:
  // `uses` of `experts` take part in each row; their weights are softmax over them, or over all.
  Mixture(std::uint32_t experts, std::uint32_t uses, bool normalised);

  void resize(std::uint32_t rows);

  // The router's scores [row][stride].
  float* scores(std::uint32_t row) { return scores_.data() + std::size_t{row} * stride_; }
  std::uint32_t stride() const { return stride_; }

  // The best experts of a row and their weights. Equal scores: the lower index wins; NaN loses.
  void choose(const KernelTable& kernels, std::uint32_t row);

  // The choices of rows [0, rows) by expert, ascending; within an expert rows ascend.
  void gather(const KernelTable& kernels, std::uint32_t rows);
  struct Used {
    std::uint32_t expert = 0;
    std::uint32_t first_tile = 0, end_tile = 0;  // of layout()
  };
  const std::vector<Used>& used() const { return used_; }
  const TileLayout& layout() const { return layout_; }
  // Of each gathered row: where it comes from, and the expert's weight for it.
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
