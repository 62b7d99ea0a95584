// SPDX-License-Identifier: Apache-2.0
// Products of packed quantised weights with quantised activations. For each output element and each 32
// columns, in order, and where a scale serves 16 columns for each half of them, in order: the integer dot
// product I of the weights' signed values, exact; then
//   acc = fma(d * dx, I, acc)           d: the weights' scale, dx: the activations'
// and for types with minima m
//   acc = fma(m, sx, acc)               sx = dx * (sum of the activations)
// In the K types d = (f16 scale) * (integer scale), which is exact, and m = -(f16 scale) * (integer minimum).
// Q2_K's two minima of 32 columns are joined: acc = fma(-(f16 scale) * dx, m0 * S0 + m1 * S1, acc) with the
// sums S of the halves.
//
// Weights are multiplied as unsigned bytes, value + bias; bias * S is taken off the sum. One pass over the
// weights serves up to 12 rows: they are unpacked in registers, each unpacked vector is used by every row,
// and the rows' bytes are broadcast from the tile.

// Calls f<kFirst>() .. f<kEnd - 1>().
template <int kFirst, int kEnd, class F>
LOCI_LANES void each(const F& f) {
  if constexpr (kFirst < kEnd) {
    f.template operator()<kFirst>();
    each<kFirst + 1, kEnd>(f);
  }
}
#define LOCI_INLINE_LAMBDA __attribute__((always_inline))

// --- planes: how 32 columns of unsigned integers up to kMost lie, and what must be taken off them ---

template <int kChunk>
LOCI_LANES Bytes64 nibbles(const u8* planes) {
  return take_bits < kChunk<4 ? 0 : 4, 4, 0>(load_bytes(planes + 64 * (kChunk % 4)));
}

template <int kOffset>
struct NibblePlanes {
  static constexpr int kBytes = 256, kMost = 15, kBias = kOffset;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return nibbles<kChunk>(planes);
  }
};

template <int kOffset>
struct FivePlanes {
  static constexpr int kBytes = 320, kMost = 31, kBias = kOffset;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return merge_bits<kChunk, 1, 4>(nibbles<kChunk>(planes), load_bytes(planes + 256));
  }
};

struct BytePlanes {
  static constexpr int kBytes = 512, kMost = 255, kBias = 128;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return load_bytes(planes + 64 * kChunk);
  }
};

struct PairPlanes {
  static constexpr int kBytes = 128, kMost = 3, kBias = 0;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return take_bits<2 * (kChunk % 4), 2, 0>(load_bytes(planes + 64 * (kChunk / 4)));
  }
};

struct TriplePlanes {
  static constexpr int kBytes = 192, kMost = 7, kBias = 4;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return merge_bits<kChunk, 1, 2>(PairPlanes::chunk<kChunk>(planes), load_bytes(planes + 128));
  }
};

struct SixPlanes {
  static constexpr int kBytes = 384, kMost = 63, kBias = 32;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    const Bytes64 upper = load_bytes(planes + 256 + 64 * (kChunk / 4));
    return merge_bits<2 * (kChunk % 4), 2, 4>(nibbles<kChunk>(planes), upper);
  }
};

// tensor_block.h's tables plus their bias.
alignas(16) constexpr u8 kIQ4Table[16] = {0,   23,  44,  62,  78,  92,  105, 117,
                                          128, 140, 152, 165, 180, 196, 216, 240};
struct IQ4Planes {
  static constexpr int kBytes = 256, kMost = 240, kBias = 127;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return lookup(kIQ4Table, nibbles<kChunk>(planes));
  }
};

alignas(16) constexpr u8 kMXFP4Table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
struct MXFP4Planes {
  static constexpr int kBytes = 256, kMost = 24, kBias = 12;
  template <int kChunk>
  LOCI_LANES Bytes64 chunk(const u8* planes) {
    return lookup(kMXFP4Table, nibbles<kChunk>(planes));
  }
};

// --- integer dot products ---

// The chunks of a block in an order that uses a vector of nibbles for both of its chunks at once.
constexpr int chunk_at(int first, int count, int i) { return count == 8 ? (i % 2) * 4 + i / 2 : first + i; }

// How many chunks of values up to kMost a ProductSum holds: a power of two, so that it divides 8.
constexpr int run_length(int count, int most) {
  int run = count;
  while (run > 1 && run * most > kSumCapacity) run /= 2;
  return run;
}

// dot[r] = chunks kFirst .. kFirst + kCount - 1 times row r, from start[r] on if there is one. kNibble
// chooses the low (0) or high (4) nibble of each byte, or the whole (-1).
template <class Planes, int kRows, int kFirst, int kCount, int kNibble, int kStride>
LOCI_LANES void dot_bytes(const u8* planes, const u8* x, const ProductSum* start, I32x16 (&dot)[kRows]) {
  constexpr int kRun = run_length(kCount, kNibble < 0 ? Planes::kMost : 15);
  constexpr int kFactor = kNibble == 4 ? 16 : 1;
  each<0, kCount / kRun>([&]<int kPart>() LOCI_INLINE_LAMBDA {
    ProductSum sum[kRows];
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) sum[r] = start != nullptr ? start[r] : zero_sum();
    each<0, kRun>([&]<int kIndex>() LOCI_INLINE_LAMBDA {
      constexpr int kChunk = chunk_at(kFirst, kCount, kPart * kRun + kIndex);
      Bytes64 w = Planes::template chunk<kChunk>(planes);
      if constexpr (kNibble >= 0) w = take_bits<kNibble, 4, 0>(w);
      if constexpr (kNibble < 0 && Planes::kMost > 127) w = wide_bytes(w);
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) add_products(sum[r], w, x + (kChunk * kStride + r) * 4);
    });
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      dot[r] = kPart == 0 ? total<kFactor>(sum[r]) : add(dot[r], total<kFactor>(sum[r]));
    }
  });
}

// Takes kBias times the sum of the activations of those chunks off.
template <int kBias, int kFirst, int kCount, int kRows>
LOCI_LANES void take_off_bias(const i32* sums, I32x16 (&dot)[kRows]) {
  if constexpr (kBias != 0) {
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      dot[r] = sub_sums < kFirst == 0 ? kBias : 0, kFirst + kCount == 8 ? kBias : 0 > (dot[r], sums + r);
    }
  }
}

// The dot products of the signed values of chunks kFirst .. kFirst + kCount - 1, with kRows rows of a tile of
// kStride.
template <class Planes, int kRows, int kFirst, int kCount, int kStride = kRows>
LOCI_LANES void dot_block(const u8* planes, const u8* x, const i32* sums, I32x16 (&dot)[kRows]) {
  constexpr int kBias = Planes::kBias - (Planes::kMost > 127 ? kWideBias : 0);
  if constexpr (kSumsHoldBias &&
                kBias != 0) {  // where sums are of 32 bits they may begin with what is taken off
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = zero_i32();
    take_off_bias<kBias, kFirst, kCount>(sums, dot);
    dot_bytes<Planes, kRows, kFirst, kCount, -1, kStride>(planes, x, dot, dot);
    return;
  } else if constexpr (Planes::kMost <= kSumCapacity) {
    dot_bytes<Planes, kRows, kFirst, kCount, -1, kStride>(planes, x, nullptr, dot);
  } else {  // a byte is too much for the sums of this set: 16 * (high nibble) + low nibble
    I32x16 high[kRows];
    dot_bytes<Planes, kRows, kFirst, kCount, 4, kStride>(planes, x, nullptr, high);
    // Or the compiler would keep what it has read for the second time, on the stack.
    asm volatile("" : "+r"(x), "+r"(planes));
    dot_bytes<Planes, kRows, kFirst, kCount, 0, kStride>(planes, x, nullptr, dot);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[r] = add(dot[r], high[r]);
  }
  take_off_bias<kBias, kFirst, kCount>(sums, dot);
}

// The scales of some rows of a tile's block: they come after its bytes, `stride` rows of each kind.
struct TileScales {
  const float* scale;
  const float* scale_sum;
  const i32* sums;  // of the halves, 16 bits each
  LOCI_LANES TileScales of(const u8* tile, u32 stride) {
    const float* first = reinterpret_cast<const float*>(tile + 32 * stride);
    return {first, first + stride, reinterpret_cast<const i32*>(first + 2 * stride)};
  }
};

// --- types: planes and a kind of scales ---

enum class Scaling {
  kF16,               // f16 a block
  kBF16,              // bf16 a block
  kMinimum,           // f16 and a minimum of f16
  kSuper,             // integers a block, f16 for 8 blocks
  kSuperMinimum,      // and integer minima
  kSuperHalf,         // integers a half of a block
  kSuperHalfMinimum,  // and integer minima
};

// Of 32 columns of a group. What a type has not is zero and unused.
struct BlockScales {
  F32x16 d, d_second;  // of the block, or of its halves
  F32x16 m;            // the minimum; kSuperHalfMinimum: the scale of the minima
  I32x16 minimum[2];   // kSuperHalfMinimum alone
};

LOCI_LANES F32x16 load_half(const u8* p) { return load_f16(reinterpret_cast<const u16*>(p)); }
LOCI_LANES F32x16 negative(F32x16 x) { return sub(zero_f32(), x); }

template <class PlanesOfType, Scaling kScaling>
struct Quantized {
  using Planes = PlanesOfType;
  static constexpr bool kSuper = kScaling >= Scaling::kSuper;
  static constexpr bool kHalves = kScaling >= Scaling::kSuperHalf;
  static constexpr bool kJointMinima = kScaling == Scaling::kSuperHalfMinimum;
  static constexpr bool kMinima =
      kScaling == Scaling::kMinimum || kScaling == Scaling::kSuperMinimum || kJointMinima;
  static constexpr int kBlocks = kSuper ? 8 : 1;
  static constexpr int kScalesAt = kBlocks * Planes::kBytes;
  static constexpr int kScaleBytes = !kSuper                       ? 0
                                     : kScaling == Scaling::kSuper ? 16
                                                                   : 32;  // integers of a block
  static constexpr int kSuperAt = kScalesAt + kBlocks * kScaleBytes;
  static constexpr int kBytes = kSuperAt + (kMinima ? 64 : 32);

  LOCI_LANES const u8* planes(const u8* step, int index) { return step + Planes::kBytes * index; }

  LOCI_LANES BlockScales scales(const u8* step, int index) {
    BlockScales s = {zero_f32(), zero_f32(), zero_f32(), {zero_i32(), zero_i32()}};
    const u8* own = step + kScalesAt + kScaleBytes * index;
    s.d = kScaling == Scaling::kBF16 ? load_bf16(reinterpret_cast<const u16*>(step + kSuperAt))
                                     : load_half(step + kSuperAt);
    if constexpr (kMinima) s.m = load_half(step + kSuperAt + 32);
    if constexpr (kSuper && kMinima) s.m = negative(s.m);
    if constexpr (kJointMinima) {
      s.d_second = mul(s.d, to_f32(load_low_nibbles(own + 16)));
      s.d = mul(s.d, to_f32(load_low_nibbles(own)));
      s.minimum[0] = load_high_nibbles(own);
      s.minimum[1] = load_high_nibbles(own + 16);
    } else if constexpr (kHalves) {
      s.d_second = mul(s.d, to_f32(load_i8(own + 16)));
      s.d = mul(s.d, to_f32(load_i8(own)));
    } else if constexpr (kSuper) {
      s.d = mul(s.d, to_f32(load_i8(own)));
      if constexpr (kMinima) s.m = mul(s.m, to_f32(load_i8(own + 16)));
    }
    return s;
  }
};

using Q4_0 = Quantized<NibblePlanes<8>, Scaling::kF16>;
using Q4_1 = Quantized<NibblePlanes<0>, Scaling::kMinimum>;
using Q5_0 = Quantized<FivePlanes<16>, Scaling::kF16>;
using Q5_1 = Quantized<FivePlanes<0>, Scaling::kMinimum>;
using Q8_0 = Quantized<BytePlanes, Scaling::kF16>;
using IQ4_NL = Quantized<IQ4Planes, Scaling::kF16>;
using MXFP4 = Quantized<MXFP4Planes, Scaling::kBF16>;
using Q2_K = Quantized<PairPlanes, Scaling::kSuperHalfMinimum>;
using Q3_K = Quantized<TriplePlanes, Scaling::kSuperHalf>;
using Q4_K = Quantized<NibblePlanes<0>, Scaling::kSuperMinimum>;
using Q5_K = Quantized<FivePlanes<0>, Scaling::kSuperMinimum>;
using Q6_K = Quantized<SixPlanes, Scaling::kSuperHalf>;
using IQ4_XS = Quantized<IQ4Planes, Scaling::kSuper>;

// --- the float part ---

// acc += (d * dx) * I
template <int kRows>
LOCI_LANES void add_dots(const I32x16 (&dot)[kRows], F32x16 d, const TileScales& x, F32x16 (&acc)[kRows]) {
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
    acc[r] = fma(mul(d, all_f32(x.scale[r])), to_f32(dot[r]), acc[r]);
  }
}

template <class Type, int kRows>
LOCI_LANES void add_minima(const BlockScales& s, const TileScales& x, F32x16 (&acc)[kRows]) {
  if constexpr (Type::kJointMinima) {
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      const I32x16 minima = times_sums(s.minimum[0], s.minimum[1], x.sums + r);
      acc[r] = fma(mul(s.m, all_f32(x.scale[r])), to_f32(minima), acc[r]);
    }
  } else if constexpr (Type::kMinima) {
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) acc[r] = fma(s.m, all_f32(x.scale_sum[r]), acc[r]);
  }
}

template <class Type, int kRows>
LOCI_LANES void add_block(const u8* step, int index, const u8* tile, F32x16 (&acc)[kRows]) {
  using Planes = typename Type::Planes;
  const u8* planes = Type::planes(step, index);
  const TileScales x = TileScales::of(tile, kRows);
  const BlockScales s = Type::scales(step, index);
  I32x16 dot[kRows];
  if constexpr (Type::kHalves) {
    dot_block<Planes, kRows, 0, 4>(planes, tile, x.sums, dot);
    add_dots(dot, s.d, x, acc);
    dot_block<Planes, kRows, 4, 4>(planes, tile, x.sums, dot);
    add_dots(dot, s.d_second, x, acc);
  } else {
    dot_block<Planes, kRows, 0, 8>(planes, tile, x.sums, dot);
    add_dots(dot, s.d, x, acc);
  }
  add_minima<Type>(s, x, acc);
}

// Weights come from memory, or from the last cache. A page ahead of `weights` the next kBytes are fetched
// into the second-level cache, because the processor's own prefetcher stops at the end of a page; and with
// some sets one line of them far ahead, so that its page is found in time. Few rows are done with a line
// before the next comes from there, so for them lines are fetched on into the first-level cache.
template <int kRows, int kBytes>
LOCI_LANES void fetch_ahead(const u8* weights) {
  constexpr int kAheadBytes = 4096, kNearBytes = 640;
  if constexpr (kFarBytes > 0) __builtin_prefetch(weights + kFarBytes, 0, 2);
  LOCI_UNROLL for (int line = 0; line < kBytes; line += 64) {
    __builtin_prefetch(weights + kAheadBytes + line, 0, 2);
    if constexpr (kRows <= 4) __builtin_prefetch(weights + kNearBytes + line, 0, 3);
  }
}

template <class Type, int kRows>
static void product_quantized(const u8* weights, const u8* tile, u32 steps, float* out) {
  constexpr int kShare = Type::kBytes / Type::kBlocks;  // fetched with each block
  F32x16 acc[kRows];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) acc[r] = zero_f32();
  for (u32 step = 0; step < steps; ++step, weights += Type::kBytes) {
    for (int index = 0; index < Type::kBlocks; ++index, tile += kTileBlockBytes * kRows) {
      fetch_ahead<kRows, kShare>(weights + index * kShare);
      add_block<Type, kRows>(weights, index, tile, acc);
    }
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) store_f32(out + 16 * r, acc[r]);
}

template <class Type, int kRows>
static void fill_quantized(ProductKernel* row) {
  if constexpr (kRows > 0) {
    row[kRows - 1] = product_quantized<Type, kRows>;
    fill_quantized<Type, kRows - 1>(row);
  }
}
template <class Type, PackedType kType>
static void add_quantized(KernelTable& table) {
  constexpr int kIndex = static_cast<int>(kType);
  static_assert(Type::kBytes == kPackedStepBytes[kIndex]);
  static_assert(Type::kBlocks * kQuantBlock == kPackedStepColumns[kIndex]);
  fill_quantized<Type, kTileRows>(table.product[kIndex]);
}
