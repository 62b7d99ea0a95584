// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/activations.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "loci/base/check.h"

namespace loci::cpu {

namespace {

// Where the four bytes of a chunk of a row begin in a block of a tile.
std::uint32_t chunk_at(std::uint32_t rows, std::uint32_t in_tile, std::uint32_t chunk) {
  return rows < kWideTileRows ? (chunk * rows + in_tile) * 4 : in_tile * kQuantBlock + chunk * 4;
}

}  // namespace

Activations::Activations(std::uint32_t columns, ActivationForms forms)
    : columns_(columns),
      forms_(forms),
      quantized_row_bytes_(std::uint64_t{columns / kQuantBlock} * kTileBlockBytes),
      float_row_bytes_(std::uint64_t{(columns + 1) / 2 * 2} * sizeof(float)) {
  LOCI_CHECK(!forms.quantized || columns % kQuantBlock == 0, "quantised rows are whole blocks");
}

TileLayout TileLayout::of(std::uint32_t rows, const KernelTable& kernels) {
  const bool wide = kernels.wide_tile_rows != 0 && rows >= kernels.wide_tile_rows;
  return {rows, wide ? kernels.wide_tile_rows : kernels.tile_rows};
}

TileLayout TileLayout::of_parts(std::span<const std::uint32_t> counts, const KernelTable& kernels) {
  TileLayout all;
  for (const std::uint32_t count : counts) {
    const TileLayout part = of(count, kernels);
    for (std::uint32_t tile = 0; tile < part.tiles(); ++tile)
      all.begins_.push_back(all.rows_ + part.begin(tile));
    all.rows_ += count;
    all.tiles_ += part.tiles();
  }
  all.begins_.push_back(all.rows_);
  return all;
}

std::uint32_t TileLayout::tile_in_parts(std::uint32_t row) const {
  return static_cast<std::uint32_t>(std::upper_bound(begins_.begin(), begins_.end(), row) - begins_.begin()) -
         1;
}

void Activations::resize(std::uint32_t rows, const KernelTable& kernels) {
  if (rows != layout_.rows()) resize(TileLayout::of(rows, kernels));
}

void Activations::resize(TileLayout layout) {
  layout_ = std::move(layout);
  const std::uint32_t rows = layout_.rows();
  if (forms_.quantized) quantized_.reserve(rows * quantized_row_bytes_, "activations");
  if (forms_.floats) {
    floats_.reserve(rows * float_row_bytes_, "activations");
    if (columns_ % 2 != 0) std::memset(floats_.data(), 0, rows * float_row_bytes_);
  }
}

std::uint8_t* Activations::quantized_block(std::uint32_t tile, std::uint32_t block) const {
  return quantized_.data() + layout_.begin(tile) * quantized_row_bytes_ +
         std::uint64_t{block} * layout_.size(tile) * kTileBlockBytes;
}

float* Activations::float_block(std::uint32_t tile, std::uint32_t block) const {
  return reinterpret_cast<float*>(floats_.data() + layout_.begin(tile) * float_row_bytes_) +
         std::uint64_t{block} * kQuantBlock * layout_.size(tile);
}

void Activations::set_block(const KernelTable& kernels, std::uint32_t tile, std::uint32_t block,
                            const float* values, std::uint32_t count) {
  const std::uint32_t rows = layout_.size(tile);
  if (forms_.quantized) kernels.quantize_rows(values, quantized_block(tile, block), rows);
  if (!forms_.floats) return;
  float* out = float_block(tile, block);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t row = 0; row < rows; ++row) out[i * rows + row] = values[row * kQuantBlock + i];
  }
}

void Activations::set_row(const KernelTable& kernels, std::uint32_t row, const float* values) {
  const std::uint32_t tile = layout_.tile_of(row);
  const std::uint32_t rows = layout_.size(tile), in_tile = row - layout_.begin(tile);
  if (forms_.quantized) {
    kernels.quantize(values, columns_ / kQuantBlock, quantized_block(tile, 0), rows, in_tile);
  }
  if (!forms_.floats) return;
  float* out = float_block(tile, 0) + in_tile;
  for (std::uint32_t i = 0; i < columns_; ++i) out[std::uint64_t{i} * rows] = values[i];
}

std::uint64_t Activations::stored_row_bytes() const {
  return forms_.floats ? std::uint64_t{columns_} * sizeof(float)
                       : columns_ + std::uint64_t{columns_} / kQuantBlock * sizeof(float);
}

void Activations::store_row(std::uint32_t row, std::span<std::byte> out) const {
  LOCI_CHECK(out.size() == stored_row_bytes(), "not a stored row");
  const std::uint32_t tile = layout_.tile_of(row);
  const std::uint32_t rows = layout_.size(tile), in_tile = row - layout_.begin(tile);
  if (forms_.floats) {
    const float* in = reinterpret_cast<const float*>(float_tile(tile)) + in_tile;
    for (std::uint32_t i = 0; i < columns_; ++i) {
      std::memcpy(out.data() + i * sizeof(float), in + std::uint64_t{i} * rows, sizeof(float));
    }
    return;
  }
  for (std::uint32_t block = 0; block < columns_ / kQuantBlock; ++block) {
    const std::uint8_t* in = quantized_block(tile, block);
    for (std::uint32_t c = 0; c < 8; ++c) {
      std::memcpy(out.data() + block * kQuantBlock + 4 * c, in + chunk_at(rows, in_tile, c), 4);
    }
    std::memcpy(out.data() + columns_ + block * sizeof(float),
                in + kQuantBlock * rows + in_tile * sizeof(float), sizeof(float));
  }
}

void Activations::load_row(const KernelTable& kernels, std::uint32_t row, std::span<const std::byte> stored) {
  LOCI_CHECK(stored.size() == stored_row_bytes(), "not a stored row");
  if (forms_.floats) {
    std::vector<float> values(columns_);
    std::memcpy(values.data(), stored.data(), stored.size());
    set_row(kernels, row, values.data());
    return;
  }
  const std::uint32_t tile = layout_.tile_of(row);
  const std::uint32_t rows = layout_.size(tile), in_tile = row - layout_.begin(tile);
  for (std::uint32_t block = 0; block < columns_ / kQuantBlock; ++block) {
    std::int8_t bytes[kQuantBlock];
    float scale = 0;
    std::memcpy(bytes, stored.data() + block * kQuantBlock, sizeof bytes);
    std::memcpy(&scale, stored.data() + columns_ + block * sizeof(float), sizeof scale);
    std::int16_t half_sums[2] = {0, 0};
    for (std::uint32_t i = 0; i < kQuantBlock; ++i) {
      std::int16_t& sum = half_sums[i / (kQuantBlock / 2)];
      sum = static_cast<std::int16_t>(sum + bytes[i]);
    }
    const float scale_sum = scale * static_cast<float>(half_sums[0] + half_sums[1]);
    std::uint8_t* out = quantized_block(tile, block);
    for (std::uint32_t c = 0; c < 8; ++c) std::memcpy(out + chunk_at(rows, in_tile, c), bytes + 4 * c, 4);
    std::uint8_t* scales = out + kQuantBlock * rows + in_tile * sizeof(float);
    std::memcpy(scales, &scale, sizeof scale);
    std::memcpy(scales + rows * sizeof(float), &scale_sum, sizeof scale_sum);
    std::memcpy(scales + 2 * rows * sizeof(float), half_sums, sizeof half_sums);
  }
}

}  // namespace loci::cpu
