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

template <class Type, int kRows>
static void product_float(const u8* weights, const u8* tile, u32 steps, float* out) {
  constexpr int kPrefetchBytes = 1024;
  const float* x = reinterpret_cast<const float*>(tile);
  F32x16 even[kRows], odd[kRows];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) even[r] = odd[r] = zero_f32();
  for (u32 step = 0; step < steps; ++step) {
    if constexpr (kRows <= 4) __builtin_prefetch(weights + kPrefetchBytes, 0, 2);
    const F32x16 w0 = Type::load(weights);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) even[r] = fma(w0, all_f32(x[r]), even[r]);
    const F32x16 w1 = Type::load(weights + Type::kBytes);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) odd[r] = fma(w1, all_f32(x[kRows + r]), odd[r]);
    weights += 2 * Type::kBytes;
    x += 2 * kRows;
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) store_f32(out + 16 * r, add(even[r], odd[r]));
}
