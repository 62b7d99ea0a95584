// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/products/packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "loci/base/check.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/model/tensor_block.h"

namespace loci::cuda {
namespace {

// One row's part of a unit: values as they are stored, not negative where stored in nibbles.
struct UnitRow {
  std::array<std::int8_t, 128> values{};
  std::array<std::uint16_t, 4> scale{}, offset{};  // f16 of each block; K types: [0] alone, of the row
  std::array<std::int8_t, 8> scales{};             // of groups, K types
  std::array<std::uint8_t, 4> offsets{};           // Q4_K
};

template <class V>
void store_at(std::byte* to, std::uint32_t at, V value) {
  std::memcpy(to + at, &value, sizeof(value));
}

// Types whose blocks have 32 elements and scales of their own.
void read_blocks(const TensorView& tensor, std::uint64_t row, std::uint32_t first, std::uint32_t blocks,
                 int middle, UnitRow& unit) {
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  const std::byte* from = tensor.row(row).data();
  QuantBlock block;
  for (std::uint32_t j = 0; j < blocks; ++j) {
    const std::uint64_t index = first / kBlockColumns + j;
    if (index * kBlockColumns >= tensor.columns) return;
    unpack_block(tensor.type, from + index * info.block_bytes, block);
    for (std::uint32_t i = 0; i < kBlockColumns; ++i) {
      unit.values[j * kBlockColumns + i] = static_cast<std::int8_t>(block.values[i] + middle);
    }
    unit.scale[j] = block.scale_bits;
    unit.offset[j] = block.offset_bits;
  }
}

// Q4_K, Q6_K: a unit is half of a block of 256.
void read_half_block(const TensorView& tensor, std::uint64_t row, std::uint32_t first, int middle,
                     UnitRow& unit) {
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  QuantBlock block;
  unpack_block(tensor.type, tensor.row(row).data() + std::uint64_t{first / 256} * info.block_bytes, block);
  const std::uint32_t half = first % 256;
  for (std::uint32_t i = 0; i < 128; ++i) {
    unit.values[i] = static_cast<std::int8_t>(block.values[half + i] + middle);
  }
  unit.scale[0] = block.scale_bits;
  unit.offset[0] = block.offset_bits;
  const std::uint32_t groups = 128 / block.group;
  for (std::uint32_t g = 0; g < groups; ++g) unit.scales[g] = block.scales[half / block.group + g];
  for (std::uint32_t g = 0; g < 4; ++g) unit.offsets[g] = block.offsets[half / block.group + g];
}

UnitRow read_unit(MatrixFormat format, const TileRow& from, std::uint32_t first) {
  UnitRow unit;
  const TensorView& tensor = *from.tensor;
  switch (format) {
    case MatrixFormat::kQ8_0: read_blocks(tensor, from.row, first, 2, 0, unit); break;
    case MatrixFormat::kQ4_0: read_blocks(tensor, from.row, first, 4, 8, unit); break;
    case MatrixFormat::kQ4_1: read_blocks(tensor, from.row, first, 4, 0, unit); break;
    case MatrixFormat::kQ4_K: read_half_block(tensor, from.row, first, 0, unit); break;
    case MatrixFormat::kQ6_K: read_half_block(tensor, from.row, first, 32, unit); break;
    default: LOCI_CHECK(false, "16-bit matrices are not packed");
  }
  return unit;
}

void put_values(MatrixFormat format, std::uint32_t r, const UnitRow& row, std::byte* to) {
  const std::uint32_t columns = unit_columns(format);
  if (format == MatrixFormat::kQ8_0) {
    for (std::uint32_t c = 0; c < columns; c += 8) {
      std::memcpy(to + UnitPlace(r, c).bytes_at(), &row.values[c], 8);
    }
    return;
  }
  for (std::uint32_t c = 0; c < columns; c += 8) {
    std::uint32_t nibbles = 0, pairs = 0;
    for (std::uint32_t i = 0; i < 8; ++i) {
      const UnitPlace at(r, c + i);
      const auto value = static_cast<std::uint32_t>(row.values[c + i]);
      nibbles |= (value & 15u) << at.nibble_shift();
      pairs |= (value >> 4) << at.pair_shift();
    }
    const UnitPlace at(r, c);
    store_at(to, at.nibbles_at(), nibbles);
    if (format != MatrixFormat::kQ6_K) continue;
    std::uint32_t others = 0;  // the other row half's fields
    std::memcpy(&others, to + at.pairs_at(), sizeof(others));
    store_at(to, at.pairs_at(), others | pairs);
  }
}

void put_scales(MatrixFormat format, std::uint32_t r, const UnitRow& row, std::byte* to) {
  for (std::uint32_t j = 0; j < unit_columns(format) / kBlockColumns; ++j) {
    const UnitPlace at(r, j * kBlockColumns), upper(r, j * kBlockColumns + 16);
    switch (format) {
      case MatrixFormat::kQ8_0: store_at(to, at.scale_at(kScalesAt, 2), row.scale[j]); break;
      case MatrixFormat::kQ4_1: store_at(to, at.scale_at(kMinimaAt, 4), row.offset[j]); [[fallthrough]];
      case MatrixFormat::kQ4_0: store_at(to, at.scale_at(kScalesAt, 4), row.scale[j]); break;
      case MatrixFormat::kQ4_K:
        store_at(to, at.row_pair_at(), row.scale[0]);
        store_at(to, at.row_pair_at() + 4, row.offset[0]);
        store_at(to, at.small_scale_at(), row.scales[j]);
        store_at(to, at.small_scale_at() + 2, row.offsets[j]);
        break;
      default:
        store_at(to, at.row_scale_at(), row.scale[0]);
        store_at(to, at.group_scale_at(), row.scales[2 * j]);
        store_at(to, upper.group_scale_at(), row.scales[2 * j + 1]);
    }
  }
}

}  // namespace

std::uint64_t tile_bytes(MatrixFormat format, std::uint32_t columns) {
  return std::uint64_t{padded_columns(columns)} / unit_columns(format) * unit_bytes(format);
}

void pack_tile(MatrixFormat format, std::uint32_t columns, std::span<const TileRow, 16> rows, std::byte* to) {
  std::memset(to, 0, tile_bytes(format, columns));  // also what is beyond the columns
  for (std::uint32_t first = 0; first < columns; first += unit_columns(format), to += unit_bytes(format)) {
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      if (rows[r].tensor == nullptr) continue;
      const UnitRow unit = read_unit(format, rows[r], first);
      put_values(format, r, unit, to);
      put_scales(format, r, unit, to);
    }
  }
}

}  // namespace loci::cuda
