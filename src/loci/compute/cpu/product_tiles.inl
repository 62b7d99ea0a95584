// SPDX-License-Identifier: Apache-2.0
// Products of wide tiles by a matrix unit (AMX) that multiplies 16 rows of bytes at once. The same bits as
// product_quantized.inl: the unit computes the exact integer dot products, and the float operations follow in
// the same order.
//
// For four blocks of 32 columns at a time: their weights are unpacked to bytes, of which a block is already a
// tile of the unit's second operand (row c: chunk c of 16 lanes, four bytes each); the wide tile's rows are
// the first operand as they lie. The dot products go through memory to the vector registers, where each row's
// accumulators add them up. Half a block (16 columns) has tiles of half the rows or width.
//
// `Tiles` is the unit: machine code (tiles_machine.inl) or plain code that does the same
// (tiles_emulated.inl).

struct TileConfig {
  u8 palette = 1;
  u8 start_row = 0;
  u8 reserved[14] = {};
  u16 row_bytes[16] = {};
  u8 rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

enum TileName { kDotsA, kDotsB, kRowsA, kRowsB, kWeights };

// The rows of activations are split over two tiles.
template <class Type>
LOCI_LANES TileConfig tile_config(u32 rows_a, u32 rows_b) {
  constexpr int kColumns = Type::kHalves ? 16 : 32;
  TileConfig config;
  const auto set = [&](TileName name, u32 rows, int row_bytes) {
    config.rows[name] = static_cast<u8>(rows);
    config.row_bytes[name] = static_cast<u16>(row_bytes);
  };
  set(kDotsA, rows_a, 64);
  set(kDotsB, rows_b, 64);
  set(kRowsA, rows_a, kColumns);
  set(kRowsB, rows_b, kColumns);
  set(kWeights, kColumns / 4, 64);
  return config;
}

constexpr int kTileBatch = 4;  // blocks whose dot products are in memory at once

// Blocks of a batch, and their products with a wide tile.
template <class Type>
struct TileBatch {
  static constexpr int kParts = Type::kHalves ? 2 : 1;
  alignas(64) u8 bytes[kTileBatch][512];
  alignas(64) i32 dots[kTileBatch][kParts][kMaxTileRows][16];
  BlockScales scales[kTileBatch];
};

template <class Type, class Tiles>
LOCI_LANES void multiply_block(Tiles& unit, const u8* step, int index, const u8* x, u32 rows_a, int at,
                               TileBatch<Type>& batch) {
  using Planes = typename Type::Planes;
  constexpr int kParts = TileBatch<Type>::kParts;
  batch.scales[at] = Type::scales(step, index);
  const u8* planes = Type::planes(step, index);
  each<0, 8>([&]<int kChunk>() LOCI_INLINE_LAMBDA {
    store_bytes(batch.bytes[at] + 64 * kChunk, Planes::template chunk<kChunk>(planes));
  });
  for (int part = 0; part < kParts; ++part) {
    const u8* rows = x + part * 16;
    unit.template load<kWeights>(batch.bytes[at] + part * 256, 64);
    unit.template load<kRowsA>(rows, 32);
    unit.template load<kRowsB>(rows + 32 * rows_a, 32);
    unit.template zero<kDotsA>();
    unit.template zero<kDotsB>();
    unit.template multiply<kDotsA, kRowsA, kWeights>();
    unit.template multiply<kDotsB, kRowsB, kWeights>();
    unit.template store<kDotsA>(batch.dots[at][part], 64);
    unit.template store<kDotsB>(batch.dots[at][part] + rows_a, 64);
  }
}

// Adds a batch of `count` blocks to the accumulators of kRows rows from `row` on, which lie in `out`.
template <class Type, int kRows>
LOCI_LANES void add_batch(const TileBatch<Type>& batch, u32 count, const u8* tile, u32 row, u32 rows,
                          float* out) {
  constexpr int kBias = Type::Planes::kBias;
  F32x16 acc[kRows];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) acc[r] = load_f32(out + (row + r) * 16);
  for (u32 at = 0; at < count; ++at, tile += kTileBlockBytes * rows) {
    TileScales x = TileScales::of(tile, rows);
    x = {x.scale + row, x.scale_sum + row, x.sums + row};
    const BlockScales& s = batch.scales[at];
    I32x16 dot[kRows];
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = load_i32(batch.dots[at][0][row + r]);
    if constexpr (Type::kHalves) {
      take_off_bias<kBias, 0, 4>(x.sums, dot);
      add_dots(dot, s.d, x, acc);
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = load_i32(batch.dots[at][1][row + r]);
      take_off_bias<kBias, 4, 4>(x.sums, dot);
      add_dots(dot, s.d_second, x, acc);
    } else {
      take_off_bias<kBias, 0, 8>(x.sums, dot);
      add_dots(dot, s.d, x, acc);
    }
    add_minima<Type>(s, x, acc);
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) store_f32(out + (row + r) * 16, acc[r]);
}

template <class Type, class Tiles>
static void product_tiles(const u8* weights, const u8* tile, u32 steps, u32 rows, float* out) {
  Tiles unit;
  TileBatch<Type> batch;
  const u32 rows_a = (rows + 1) / 2;
  unit.configure(tile_config<Type>(rows_a, rows - rows_a));
  for (u32 row = 0; row < rows; ++row) store_f32(out + row * 16, zero_f32());
  const u32 blocks = steps * Type::kBlocks, block_bytes = kTileBlockBytes * rows;
  for (u32 first = 0; first < blocks; first += kTileBatch) {
    const u32 count = blocks - first < kTileBatch ? blocks - first : kTileBatch;
    for (u32 at = 0; at < count; ++at) {
      const u32 block = first + at;
      const u8* step = weights + static_cast<size_t>(block / Type::kBlocks) * Type::kBytes;
      multiply_block<Type>(unit, step, static_cast<int>(block % Type::kBlocks), tile + at * block_bytes,
                           rows_a, static_cast<int>(at), batch);
    }
    u32 row = 0;
    for (; row + 4 <= rows; row += 4) add_batch<Type, 4>(batch, count, tile, row, rows, out);
    for (; row < rows; ++row) add_batch<Type, 1>(batch, count, tile, row, rows, out);
    tile += static_cast<size_t>(count) * block_bytes;
  }
  unit.release();
}

template <class Type, class Tiles, int kRows>
static void product_wide(const u8* weights, const u8* tile, u32 steps, float* out) {
  product_tiles<Type, Tiles>(weights, tile, steps, kRows, out);
}

template <class Type, class Tiles, int kRows>
static void fill_wide(ProductKernel* row) {
  if constexpr (kRows >= static_cast<int>(kWideTileRows)) {
    row[kRows - 1] = product_wide<Type, Tiles, kRows>;
    fill_wide<Type, Tiles, kRows - 1>(row);
  }
}
template <class Type, int kRows>
static void fill_wide_float(ProductKernel* row) {
  if constexpr (kRows >= static_cast<int>(kWideTileRows)) {
    row[kRows - 1] = product_float_wide<Type, kRows>;
    fill_wide_float<Type, kRows - 1>(row);
  }
}

// Adds the kernels of wide tiles to a table that has the others.
template <class Tiles>
static void add_wide_tiles(KernelTable& table) {
  constexpr int kMost = static_cast<int>(kMaxTileRows);
  const auto row = [&](PackedType type) { return table.product[static_cast<int>(type)]; };
  table.wide_tile_rows = kMaxTileRows;
  fill_wide<Q4_0, Tiles, kMost>(row(PackedType::kQ4_0));
  fill_wide<Q4_1, Tiles, kMost>(row(PackedType::kQ4_1));
  fill_wide<Q5_0, Tiles, kMost>(row(PackedType::kQ5_0));
  fill_wide<Q5_1, Tiles, kMost>(row(PackedType::kQ5_1));
  fill_wide<Q8_0, Tiles, kMost>(row(PackedType::kQ8_0));
  fill_wide<IQ4_NL, Tiles, kMost>(row(PackedType::kIQ4_NL));
  fill_wide<MXFP4, Tiles, kMost>(row(PackedType::kMXFP4));
  fill_wide<Q2_K, Tiles, kMost>(row(PackedType::kQ2_K));
  fill_wide<Q3_K, Tiles, kMost>(row(PackedType::kQ3_K));
  fill_wide<Q4_K, Tiles, kMost>(row(PackedType::kQ4_K));
  fill_wide<Q5_K, Tiles, kMost>(row(PackedType::kQ5_K));
  fill_wide<Q6_K, Tiles, kMost>(row(PackedType::kQ6_K));
  fill_wide<IQ4_XS, Tiles, kMost>(row(PackedType::kIQ4_XS));
  fill_wide_float<F32, kMost>(row(PackedType::kF32));
  fill_wide_float<F16, kMost>(row(PackedType::kF16));
  fill_wide_float<BF16, kMost>(row(PackedType::kBF16));
}
