// SPDX-License-Identifier: Apache-2.0
// Products of packed float weights (F32, F16, BF16, widened exactly) with float activations. For each
// output element two chains of fused multiply-adds, over even and over odd columns, and their sum.

struct F32 {
  static constexpr int kBytes = 64;
  LOCI_LANES F32x16 load(const u8* p) { return load_f32(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int kBytes = 32;
  LOCI_LANES F32x16 load(const u8* p) { return load_f16(reinterpret_cast<const u16*>(p)); }
};
struct BF16 {
  static constexpr int kBytes = 32;
  LOCI_LANES F32x16 load(const u8* p) { return load_bf16(reinterpret_cast<const u16*>(p)); }
};

// kRows of the `stride` rows of a tile.
template <class Type, int kRows>
LOCI_LANES void float_rows(const u8* weights, const float* x, u32 stride, u32 steps, float* out) {
  F32x16 even[kRows], odd[kRows];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) even[r] = odd[r] = zero_f32();
  for (u32 step = 0; step < steps; ++step) {
    fetch_ahead<kRows, 2 * Type::kBytes>(weights);
    const F32x16 w0 = Type::load(weights);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) even[r] = fma(w0, all_f32(x[r]), even[r]);
    const F32x16 w1 = Type::load(weights + Type::kBytes);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) odd[r] = fma(w1, all_f32(x[stride + r]), odd[r]);
    weights += 2 * Type::kBytes;
    x += 2 * stride;
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) store_f32(out + 16 * r, add(even[r], odd[r]));
}

template <class Type, int kRows>
static void product_float(const u8* weights, const u8* tile, u32 steps, float* out) {
  float_rows<Type, kRows>(weights, reinterpret_cast<const float*>(tile), kRows, steps, out);
}

// A wide tile, in parts of nearly equal size.
template <class Type, int kRows, int kFirst = 0>
static void product_float_wide(const u8* weights, const u8* tile, u32 steps, float* out) {
  constexpr int kLeft = kRows - kFirst, kParts = (kLeft + kTileRows - 1) / kTileRows;
  constexpr int kPart = (kLeft + kParts - 1) / kParts;
  float_rows<Type, kPart>(weights, reinterpret_cast<const float*>(tile) + kFirst, kRows, steps,
                          out + 16 * kFirst);
  if constexpr (kFirst + kPart < kRows)
    product_float_wide<Type, kRows, kFirst + kPart>(weights, tile, steps, out);
}
