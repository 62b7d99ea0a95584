// Products of packed quantised weights with quantised activations. For each output element and each 32
// columns, in order: the integer dot product, exact; then
//   Q4_1  acc = fma(d * dx, dot, acc); acc = fma(m, sx, acc)      sx = dx * (sum of the activations)
//   Q4_0, Q8_0  acc = fma(d * dx, dot, acc)
//   Q6_K  acc = fma(d * dx, s0 * dot0 + s1 * dot1, acc)           the sum is exact
// One pass over the weights serves up to 12 rows: they are unpacked in registers, each unpacked vector
// is used by every row, and the rows' bytes are broadcast from the tile. For few rows the weights come
// from memory and are prefetched.

template <int kRows>
LOCI_LANES void dot_nibbles(const u8* weights, const u8* tile, I32x16 (&dot)[kRows]) {
  NibbleSum sum[kRows];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) sum[r] = zero_nibble_sum();
  LOCI_UNROLL for (int c = 0; c < 4; ++c) {
    const Bytes64 packed = load_bytes(weights + 64 * c);
    const Bytes64 low = low_nibbles(packed);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) add_nibbles(sum[r], low, tile + (c * kRows + r) * 4);
    const Bytes64 high = high_nibbles(packed);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) add_nibbles(sum[r], high, tile + ((c + 4) * kRows + r) * 4);
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = total(sum[r]);
}

// The scales of a tile's block, after its bytes.
template <int kRows>
struct TileScales {
  const float* scale;
  const float* scale_sum;
  const i32* sum;
  const i32* half_sum;
  LOCI_LANES TileScales of(const u8* tile) {
    const float* first = reinterpret_cast<const float*>(tile + 32 * kRows);
    return {first, first + kRows, reinterpret_cast<const i32*>(first + 2 * kRows),
            reinterpret_cast<const i32*>(first + 3 * kRows)};
  }
};

struct Q4_1 {
  static constexpr int kBytes = 320;
  template <int kRows>
  LOCI_LANES void step(const u8* weights, const u8* tile, F32x16 (&acc)[kRows]) {
    I32x16 dot[kRows];
    dot_nibbles<kRows>(weights, tile, dot);
    const auto x = TileScales<kRows>::of(tile);
    const F32x16 d = load_f16(reinterpret_cast<const u16*>(weights + 256));
    const F32x16 m = load_f16(reinterpret_cast<const u16*>(weights + 288));
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      acc[r] = fma(mul(d, all_f32(x.scale[r])), to_f32(dot[r]), acc[r]);
      acc[r] = fma(m, all_f32(x.scale_sum[r]), acc[r]);
    }
  }
};

struct Q4_0 {
  static constexpr int kBytes = 288;
  template <int kRows>
  LOCI_LANES void step(const u8* weights, const u8* tile, F32x16 (&acc)[kRows]) {
    I32x16 dot[kRows];
    dot_nibbles<kRows>(weights, tile, dot);
    const auto x = TileScales<kRows>::of(tile);
    const F32x16 d = load_f16(reinterpret_cast<const u16*>(weights + 256));
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      const I32x16 centred = sub(dot[r], all_i32(8 * x.sum[r]));
      acc[r] = fma(mul(d, all_f32(x.scale[r])), to_f32(centred), acc[r]);
    }
  }
};

struct Q8_0 {
  static constexpr int kBytes = 544;
  template <int kRows>
  LOCI_LANES void step(const u8* weights, const u8* tile, F32x16 (&acc)[kRows]) {
    I32x16 dot[kRows];
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = zero_i32();
    LOCI_UNROLL for (int c = 0; c < 8; ++c) {
      const ByteWeights w = load_byte_weights(weights + 64 * c);
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) add_signed(dot[r], w, tile + (c * kRows + r) * 4);
    }
    const auto x = TileScales<kRows>::of(tile);
    const F32x16 d = load_f16(reinterpret_cast<const u16*>(weights + 512));
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      acc[r] = fma(mul(d, all_f32(x.scale[r])), to_f32(signed_total(dot[r], x.sum[r])), acc[r]);
    }
  }
};

struct Q6_K {
  static constexpr int kBytes = 448;
  // Chunks 4 * kHalf .. 4 * kHalf + 3: 16 columns, which share a scale.
  template <int kRows, int kHalf>
  LOCI_LANES void dot_half(const u8* weights, const u8* tile, I32x16 (&dot)[kRows]) {
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = zero_i32();
    const Bytes64 pairs = load_bytes(weights + 256 + 64 * kHalf);
    const auto nibbles = [&](int c) __attribute__((always_inline)) {
      const Bytes64 packed = load_bytes(weights + 64 * c);
      return kHalf == 0 ? low_nibbles(packed) : high_nibbles(packed);
    };
    const u8* x = tile + 16 * kHalf * kRows;
    {
      const Bytes64 w0 = with_bit_pairs<0>(nibbles(0), pairs), w1 = with_bit_pairs<2>(nibbles(1), pairs);
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) add_sixes(dot[r], w0, x + r * 4, w1, x + (kRows + r) * 4);
    }
    const Bytes64 w2 = with_bit_pairs<4>(nibbles(2), pairs), w3 = with_bit_pairs<6>(nibbles(3), pairs);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      add_sixes(dot[r], w2, x + (2 * kRows + r) * 4, w3, x + (3 * kRows + r) * 4);
    }
  }
  template <int kRows>
  LOCI_LANES void step(const u8* weights, const u8* tile, F32x16 (&acc)[kRows]) {
    const auto x = TileScales<kRows>::of(tile);
    I32x16 scaled[kRows], dot[kRows];
    dot_half<kRows, 0>(weights, tile, dot);
    const I32x16 s0 = load_i8(weights + 384), s1 = load_i8(weights + 400);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) scaled[r] = mul(s0, sub(dot[r], all_i32(32 * x.half_sum[r])));
    dot_half<kRows, 1>(weights, tile, dot);
    const F32x16 d = load_f16(reinterpret_cast<const u16*>(weights + 416));
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      const I32x16 half = mul(s1, sub(dot[r], all_i32(32 * (x.sum[r] - x.half_sum[r]))));
      acc[r] = fma(mul(d, all_f32(x.scale[r])), to_f32(add(scaled[r], half)), acc[r]);
    }
  }
};

template <class Type, int kRows>
static void product_quantized(const u8* weights, const u8* tile, u32 steps, float* out) {
  // Into the second-level cache, and near: the processor's own prefetcher follows one stream well, but
  // stops at the end of a page.
  constexpr int kPrefetchBytes = 1024;
  F32x16 acc[kRows];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) acc[r] = zero_f32();
  for (u32 step = 0; step < steps; ++step) {
    if constexpr (kRows <= 4) {
      LOCI_UNROLL for (int line = 0; line < Type::kBytes; line += 64) {
        __builtin_prefetch(weights + kPrefetchBytes + line, 0, 2);
      }
    }
    Type::template step<kRows>(weights, tile, acc);
    weights += Type::kBytes;
    tile += kTileBlockBytes * kRows;
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) store_f32(out + 16 * r, acc[r]);
}
