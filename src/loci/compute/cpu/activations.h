// SPDX-License-Identifier: Apache-2.0
// The rows that a product multiplies, in tiles of up to KernelTable::tile_rows rows (kernel_table.h). They
// are quantised to int8 blocks, or floats, or both if the weights that read them differ. Different threads
// may set different rows at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/kernel_table.h"

namespace loci::cpu {

// Which forms of a row the matrices that read it need.
struct ActivationForms {
  bool quantized = false;
  bool floats = false;
};

// How rows are divided into tiles: as few as possible, of nearly equal sizes. If the rows of several matrices
// lie one after the other, each matrix's rows are divided separately.
class TileLayout {
 public:
  TileLayout() = default;
  // With tiles up to the kernels' largest.
  static TileLayout of(std::uint32_t rows, const KernelTable& kernels);
  // For parts of counts[i] rows each; a tile has rows of one part only.
  static TileLayout of_parts(std::span<const std::uint32_t> counts, const KernelTable& kernels);
  TileLayout(std::uint32_t rows, std::uint32_t tile_rows)
      : rows_(rows), tiles_((rows + tile_rows - 1) / tile_rows) {
    if (tiles_ > 0) {
      small_ = rows / tiles_;
      large_tiles_ = rows % tiles_;
    }
  }
  std::uint32_t rows() const { return rows_; }
  std::uint32_t tiles() const { return tiles_; }
  std::uint32_t begin(std::uint32_t tile) const {
    if (!begins_.empty()) return begins_[tile];
    return tile * small_ + (tile < large_tiles_ ? tile : large_tiles_);
  }
  std::uint32_t size(std::uint32_t tile) const {
    if (!begins_.empty()) return begins_[tile + 1] - begins_[tile];
    return small_ + (tile < large_tiles_ ? 1 : 0);
  }
  std::uint32_t tile_of(std::uint32_t row) const {
    if (!begins_.empty()) return tile_in_parts(row);
    const std::uint32_t in_large = large_tiles_ * (small_ + 1);
    return row < in_large ? row / (small_ + 1) : large_tiles_ + (row - in_large) / small_;
  }

 private:
  std::uint32_t tile_in_parts(std::uint32_t row) const;

  std::uint32_t rows_ = 0;
  std::uint32_t tiles_ = 0;
  std::uint32_t small_ = 0;            // rows of a small tile
  std::uint32_t large_tiles_ = 0;      // tiles that have one row more; they come first
  std::vector<std::uint32_t> begins_;  // first row of each tile, and the end; only with parts
};

class Activations {
 public:
  // If rows are quantised, `columns` must be a multiple of 32.
  Activations(std::uint32_t columns, ActivationForms forms);

  // Makes room for `rows` rows; earlier contents are lost.
  void resize(std::uint32_t rows, const KernelTable& kernels);
  void resize(TileLayout layout);
  const TileLayout& layout() const { return layout_; }
  const ActivationForms& forms() const { return forms_; }
  std::uint32_t columns() const { return columns_; }

  void set_row(const KernelTable& kernels, std::uint32_t row, const float* values);
  // Sets columns [32 * block, 32 * block + count) of each row of a tile; a row's values are at values + 32 *
  // row.
  void set_block(const KernelTable& kernels, std::uint32_t tile, std::uint32_t block, const float* values,
                 std::uint32_t count);

  const std::uint8_t* quantized_tile(std::uint32_t tile) const {
    return quantized_.data() + layout_.begin(tile) * quantized_row_bytes_;
  }
  const std::uint8_t* float_tile(std::uint32_t tile) const {
    return floats_.data() + layout_.begin(tile) * float_row_bytes_;
  }

  // Bytes of a row that is stored for later (H of HCache §4). It holds exactly what the product consumes.
  // Quantised: i8[columns], f32 scale[columns / 32]; if floats are needed: f32[columns].
  std::uint64_t stored_row_bytes() const;
  void store_row(std::uint32_t row, std::span<std::byte> out) const;
  void load_row(const KernelTable& kernels, std::uint32_t row, std::span<const std::byte> stored);

 private:
  std::uint8_t* quantized_block(std::uint32_t tile, std::uint32_t block) const;
  // Of column 32 * block of the tile's first row; the rows' values of a column lie one after the other.
  float* float_block(std::uint32_t tile, std::uint32_t block) const;

  std::uint32_t columns_;
  ActivationForms forms_;
  std::uint64_t quantized_row_bytes_;
  std::uint64_t float_row_bytes_;
  TileLayout layout_;
  Buffer quantized_;
  Buffer floats_;
};

}  // namespace loci::cpu
