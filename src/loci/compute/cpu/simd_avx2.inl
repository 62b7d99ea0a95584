// SPDX-License-Identifier: Apache-2.0
// The 16 lanes on AVX2, FMA and F16C: two registers. Included inside the namespace of one instruction
// set; simd.h says what each function must compute.

struct F32x16 {
  __m256 a, b;
};
struct I32x16 {
  __m256i a, b;
};
using Bytes64 = I32x16;

LOCI_LANES F32x16 zero_f32() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
LOCI_LANES F32x16 all_f32(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LOCI_LANES F32x16 load_f32(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LOCI_LANES F32x16 load_f32_8(const float* p) { return {_mm256_loadu_ps(p), _mm256_setzero_ps()}; }
LOCI_LANES void store_f32(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
LOCI_LANES void store_f32_8(float* p, F32x16 x) { _mm256_storeu_ps(p, x.a); }
LOCI_LANES __m128i load_8_u16(const u16* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
LOCI_LANES F32x16 load_f16(const u16* p) {
  return {_mm256_cvtph_ps(load_8_u16(p)), _mm256_cvtph_ps(load_8_u16(p + 8))};
}
LOCI_LANES F32x16 load_f16_8(const u16* p) { return {_mm256_cvtph_ps(load_8_u16(p)), _mm256_setzero_ps()}; }
LOCI_LANES void store_f16(u16* p, F32x16 x) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, kRounding));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, kRounding));
}
LOCI_LANES F32x16 load_bf16(const u16* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_u16(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_u16(p + 8)), 16))};
}

LOCI_LANES F32x16 add(F32x16 x, F32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
LOCI_LANES F32x16 sub(F32x16 x, F32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
LOCI_LANES F32x16 mul(F32x16 x, F32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
LOCI_LANES F32x16 div(F32x16 x, F32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
LOCI_LANES F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
LOCI_LANES F32x16 max(F32x16 x, F32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
LOCI_LANES F32x16 min(F32x16 x, F32x16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
LOCI_LANES F32x16 abs(F32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
LOCI_LANES F32x16 swap_neighbours(F32x16 x) {
  return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
}
LOCI_LANES F32x16 first_lanes(F32x16 x, int count, F32x16 other) {
  const __m256i limit = _mm256_set1_epi32(count);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i keep_a = _mm256_cmpgt_epi32(limit, lane);
  const __m256i keep_b = _mm256_cmpgt_epi32(limit, _mm256_add_epi32(lane, _mm256_set1_epi32(8)));
  return {_mm256_blendv_ps(other.a, x.a, _mm256_castsi256_ps(keep_a)),
          _mm256_blendv_ps(other.b, x.b, _mm256_castsi256_ps(keep_b))};
}
LOCI_LANES F32x16 to_f32(I32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
LOCI_LANES I32x16 bits_of(F32x16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
LOCI_LANES F32x16 from_bits(I32x16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
LOCI_LANES I32x16 zero_i32() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
LOCI_LANES I32x16 all_i32(i32 x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
LOCI_LANES I32x16 add(I32x16 x, I32x16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
LOCI_LANES I32x16 sub(I32x16 x, I32x16 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
LOCI_LANES I32x16 mul(I32x16 x, I32x16 y) {
  return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}
LOCI_LANES I32x16 shift_left_23(I32x16 x) { return {_mm256_slli_epi32(x.a, 23), _mm256_slli_epi32(x.b, 23)}; }
LOCI_LANES I32x16 load_i8(const u8* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
LOCI_LANES void store_low_bytes(u8* p, I32x16 x) {
  const __m256i pick = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                        0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i a = _mm256_shuffle_epi8(x.a, pick);
  const __m256i b = _mm256_shuffle_epi8(x.b, pick);
  const __m128i low = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i high = _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi64(low, high));
}
LOCI_LANES void sums_i32(I32x16 x, I32x16 y, i32& sum_x, i32& sum_y) {
  const __m256i pairs = _mm256_hadd_epi32(_mm256_add_epi32(x.a, x.b), _mm256_add_epi32(y.a, y.b));
  const __m256i fours = _mm256_hadd_epi32(pairs, pairs);
  const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  sum_x = _mm_extract_epi32(both, 0);
  sum_y = _mm_extract_epi32(both, 1);
}
LOCI_LANES float sum_f32(F32x16 x) {
  const __m256 b = _mm256_add_ps(x.a, x.b);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LOCI_LANES float max_f32(F32x16 x) {
  const __m256 b = _mm256_max_ps(x.a, x.b);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

// --- bytes ---
LOCI_LANES Bytes64 load_bytes(const u8* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
// Bits kFrom .. kFrom + kWidth - 1 of each byte, moved to kTo; the byte's other bits are zero.
template <int kFrom, int kTo>
LOCI_LANES __m256i move_bits(__m256i x) {
  if constexpr (kFrom == kTo) return x;
  if constexpr (kFrom > kTo) return _mm256_srli_epi16(x, kFrom - kTo);
  if constexpr (kFrom < kTo) return _mm256_slli_epi16(x, kTo - kFrom);
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 take_bits(Bytes64 x) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(((1 << kWidth) - 1) << kTo));
  return {_mm256_and_si256(move_bits<kFrom, kTo>(x.a), mask),
          _mm256_and_si256(move_bits<kFrom, kTo>(x.b), mask)};
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 merge_bits(Bytes64 low, Bytes64 from) {
  const Bytes64 moved = take_bits<kFrom, kWidth, kTo>(from);
  return {_mm256_or_si256(low.a, moved.a), _mm256_or_si256(low.b, moved.b)};
}
LOCI_LANES Bytes64 lookup(const u8* table, Bytes64 index) {
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(twice, index.a), _mm256_shuffle_epi8(twice, index.b)};
}
LOCI_LANES Bytes64 wide_bytes(Bytes64 x) { return x; }
LOCI_LANES __m256i all_four_bytes(const void* p) {
  i32 x;
  __builtin_memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}

// Sums of pairs in 16 bits: chunks whose largest values add up to 129 stay below 2 * 129 * 127 = 32,766.
using ProductSum = I32x16;
constexpr int kSumCapacity = 129;
constexpr bool kSumsHoldBias = false;
constexpr int kWideBias = 0;
LOCI_LANES ProductSum zero_sum() { return zero_i32(); }
LOCI_LANES void add_products(ProductSum& sum, Bytes64 weights, const u8* x) {
  const __m256i four = all_four_bytes(x);
  sum.a = _mm256_add_epi16(sum.a, _mm256_maddubs_epi16(weights.a, four));
  sum.b = _mm256_add_epi16(sum.b, _mm256_maddubs_epi16(weights.b, four));
  // The compiler would compute many products ahead and spill them.
  asm volatile("" : "+x"(sum.a), "+x"(sum.b));
}
template <int kFactor>
LOCI_LANES I32x16 total(ProductSum sum) {
  const __m256i factor = _mm256_set1_epi16(kFactor);
  return {_mm256_madd_epi16(sum.a, factor), _mm256_madd_epi16(sum.b, factor)};
}
template <int kFirst, int kSecond>
LOCI_LANES I32x16 sub_sums(I32x16 dot, const i32* sums) {
  const __m256i factors =
      _mm256_set1_epi32((-kFirst & 0xffff) | static_cast<i32>(static_cast<u32>(-kSecond) << 16));
  const __m256i surplus = _mm256_madd_epi16(factors, all_four_bytes(sums));
  return add(dot, {surplus, surplus});
}
LOCI_LANES I32x16 times_sums(I32x16 first, I32x16 second, const i32* sums) {
  const __m256i both = all_four_bytes(sums);
  return {_mm256_madd_epi16(_mm256_or_si256(first.a, _mm256_slli_epi32(second.a, 16)), both),
          _mm256_madd_epi16(_mm256_or_si256(first.b, _mm256_slli_epi32(second.b, 16)), both)};
}
LOCI_LANES I32x16 load_u8(const u8* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
LOCI_LANES I32x16 load_low_nibbles(const u8* p) {
  const I32x16 bytes = load_u8(p);
  const __m256i mask = _mm256_set1_epi32(15);
  return {_mm256_and_si256(bytes.a, mask), _mm256_and_si256(bytes.b, mask)};
}
LOCI_LANES I32x16 load_high_nibbles(const u8* p) {
  const I32x16 bytes = load_u8(p);
  return {_mm256_srli_epi32(bytes.a, 4), _mm256_srli_epi32(bytes.b, 4)};
}

// Weights are 16-bit numbers; four tokens of four dimensions are a register of them.
LOCI_LANES void store_16_weights(u8* p, I32x16 x) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
}
LOCI_LANES void store_weights(u8* p, I32x16 x, I32x16 y) {
  store_16_weights(p, x);
  store_16_weights(p + 32, y);
}
struct ValueBytes {
  __m256i v[4];
};
struct ValueSum {
  __m256i v[4];
};
LOCI_LANES ValueBytes load_values(const u8* p) {
  ValueBytes x;
  LOCI_UNROLL for (int i = 0; i < 4; ++i) {
    x.v[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i)));
  }
  return x;
}
LOCI_LANES ValueSum zero_value_sum() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero, zero, zero}};
}
LOCI_LANES void add_weighted(ValueSum& sum, const ValueBytes& values, const u8* weights, u32 quad) {
  long long four;
  __builtin_memcpy(&four, weights + 8 * quad, 8);
  const __m256i all = _mm256_set1_epi64x(four);
  LOCI_UNROLL for (int i = 0; i < 4; ++i) {
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(values.v[i], all));
  }
}
LOCI_LANES I32x16 value_total(const ValueSum& sum) {
  return {_mm256_permute4x64_epi64(_mm256_hadd_epi32(sum.v[0], sum.v[1]), 0xd8),
          _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum.v[2], sum.v[3]), 0xd8)};
}

// How much of a kernel's work fits into this set's registers. No bits depend on these.
constexpr int kTileRows = 5;           // activation rows of a product
constexpr int kAttentionRows = 6;      // queries of an attention partial
constexpr int kScoreVectors = 1;       // vectors of 16 tokens
constexpr int kValueAccumulators = 6;  // rows * vectors of 16 dimensions
constexpr int kScoreRows = 6;          // queries of q8 scores
constexpr int kValueSums = 2;          // ValueSums
constexpr int kValueVectors = 1;       // vectors of 16 dimensions, for many queries
constexpr int kFarBytes = 0;           // a line of weights is fetched so far ahead too: slower with AVX2
