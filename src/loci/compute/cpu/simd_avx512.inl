// SPDX-License-Identifier: Apache-2.0
// The 16 lanes on AVX-512 (F, BW, DQ, VL, VNNI). Included inside the namespace of one instruction set;
// simd.h says what each function must compute.

using F32x16 = __m512;
using I32x16 = __m512i;
using Bytes64 = __m512i;

LOCI_LANES F32x16 zero_f32() { return _mm512_setzero_ps(); }
LOCI_LANES F32x16 all_f32(float x) { return _mm512_set1_ps(x); }
LOCI_LANES F32x16 load_f32(const float* p) { return _mm512_loadu_ps(p); }
LOCI_LANES F32x16 load_f32_8(const float* p) { return _mm512_zextps256_ps512(_mm256_loadu_ps(p)); }
LOCI_LANES void store_f32(float* p, F32x16 x) { _mm512_storeu_ps(p, x); }
LOCI_LANES void store_f32_8(float* p, F32x16 x) { _mm256_storeu_ps(p, _mm512_castps512_ps256(x)); }
LOCI_LANES F32x16 load_f16(const u16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LOCI_LANES F32x16 load_f16_8(const u16* p) {
  return _mm512_cvtph_ps(_mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
LOCI_LANES void store_f16(u16* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LOCI_LANES F32x16 load_bf16(const u16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

LOCI_LANES F32x16 add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
LOCI_LANES F32x16 sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
LOCI_LANES F32x16 mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
LOCI_LANES F32x16 div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
LOCI_LANES F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
LOCI_LANES F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
LOCI_LANES F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
LOCI_LANES F32x16 abs(F32x16 a) { return _mm512_abs_ps(a); }
LOCI_LANES F32x16 swap_neighbours(F32x16 a) { return _mm512_permute_ps(a, 0xb1); }
LOCI_LANES F32x16 first_lanes(F32x16 a, int count, F32x16 other) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), other, a);
}
LOCI_LANES F32x16 to_f32(I32x16 a) { return _mm512_cvtepi32_ps(a); }
LOCI_LANES I32x16 bits_of(F32x16 a) { return _mm512_castps_si512(a); }
LOCI_LANES F32x16 from_bits(I32x16 a) { return _mm512_castsi512_ps(a); }
LOCI_LANES I32x16 zero_i32() { return _mm512_setzero_si512(); }
LOCI_LANES I32x16 all_i32(i32 x) { return _mm512_set1_epi32(x); }
LOCI_LANES I32x16 add(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
LOCI_LANES I32x16 sub(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
LOCI_LANES I32x16 mul(I32x16 a, I32x16 b) { return _mm512_mullo_epi32(a, b); }
LOCI_LANES I32x16 shift_left_23(I32x16 a) { return _mm512_slli_epi32(a, 23); }
LOCI_LANES I32x16 load_i32(const i32* p) { return _mm512_loadu_si512(p); }
LOCI_LANES I32x16 load_i8(const u8* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LOCI_LANES I32x16 load_u8(const u8* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LOCI_LANES void store_low_bytes(u8* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
LOCI_LANES float sum_f32(F32x16 a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LOCI_LANES float max_f32(F32x16 a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

// --- four blocks at once ---
// Lanes (i, i + 8) of four vectors, then (i, i + 4), (i, i + 2), (0, 1): as max_f32 of each.
LOCI_LANES __m128 max_of_four(const F32x16 (&x)[4]) {
  __m128 quarter[4];
  LOCI_UNROLL for (int i = 0; i < 4; ++i) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x[i]), _mm512_extractf32x8_ps(x[i], 1));
    quarter[i] = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  const __m128 first =
      _mm_max_ps(_mm_unpacklo_ps(quarter[0], quarter[1]), _mm_unpackhi_ps(quarter[0], quarter[1]));
  const __m128 last =
      _mm_max_ps(_mm_unpacklo_ps(quarter[2], quarter[3]), _mm_unpackhi_ps(quarter[2], quarter[3]));
  return _mm_max_ps(_mm_movelh_ps(first, last), _mm_movehl_ps(last, first));
}
template <int kBlock>
LOCI_LANES F32x16 all_of(__m128 x) {
  return _mm512_broadcastss_ps(_mm_permute_ps(x, 0x55 * kBlock));
}
#define LOCI_QUANTIZES_FOUR
LOCI_LANES void quantize_four(const float* const (&x)[4], i32* chunks, float* scales, float* scale_sums,
                              i32* sums) {
  F32x16 a[4], b[4], largest_of[4];
  LOCI_UNROLL for (int i = 0; i < 4; ++i) {
    a[i] = load_f32(x[i]);
    b[i] = load_f32(x[i] + 16);
    largest_of[i] = max(abs(a[i]), abs(b[i]));
  }
  const __m128 largest = max_of_four(largest_of);
  const __mmask8 some = _mm_cmp_ps_mask(largest, _mm_set1_ps(0x1p-100f), _CMP_NLT_UQ);
  const __m128 scale = _mm_maskz_div_ps(some, largest, _mm_set1_ps(127.0f));
  const __m128 inverse = _mm_maskz_div_ps(some, _mm_set1_ps(127.0f), largest);
  const F32x16 factor[4] = {all_of<0>(inverse), all_of<1>(inverse), all_of<2>(inverse), all_of<3>(inverse)};
  // A quarter j of words[i] has chunk j of the block, then chunk 4 + j; of bytes[0] those of blocks 0 and 1.
  __m512i words[4];
  LOCI_UNROLL for (int i = 0; i < 4; ++i) {
    words[i] = _mm512_packs_epi32(_mm512_cvtps_epi32(mul(a[i], factor[i])),
                                  _mm512_cvtps_epi32(mul(b[i], factor[i])));
  }
  const __m512i bytes[2] = {_mm512_packs_epi16(words[0], words[1]), _mm512_packs_epi16(words[2], words[3])};
  __m128i halves[2];  // sums of the halves of blocks 0 and 1, and of 2 and 3
  LOCI_UNROLL for (int i = 0; i < 2; ++i) {
    const __m512i quarters = _mm512_dpbusd_epi32(zero_i32(), _mm512_set1_epi8(1), bytes[i]);
    const __m256i fold =
        _mm256_add_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
    halves[i] = _mm_add_epi32(_mm256_castsi256_si128(fold), _mm256_extracti128_si256(fold, 1));
  }
  const __m128 low = _mm_castsi128_ps(halves[0]), high = _mm_castsi128_ps(halves[1]);
  const __m128i first = _mm_castps_si128(_mm_shuffle_ps(low, high, 0x88));
  const __m128i second = _mm_castps_si128(_mm_shuffle_ps(low, high, 0xdd));
  const F32x16 left = from_bits(bytes[0]), right = from_bits(bytes[1]);
  store_f32(reinterpret_cast<float*>(chunks), _mm512_shuffle_ps(left, right, 0x88));
  store_f32(reinterpret_cast<float*>(chunks + 16), _mm512_shuffle_ps(left, right, 0xdd));
  _mm_store_ps(scales, scale);
  _mm_store_ps(scale_sums, _mm_mul_ps(scale, _mm_cvtepi32_ps(_mm_add_epi32(first, second))));
  _mm_store_si128(reinterpret_cast<__m128i*>(sums),
                  _mm_mask_blend_epi16(0xaa, first, _mm_slli_epi32(second, 16)));
}

// --- bytes ---
LOCI_LANES Bytes64 load_bytes(const u8* p) { return _mm512_loadu_si512(p); }
LOCI_LANES void store_bytes(u8* p, Bytes64 a) { _mm512_storeu_si512(p, a); }
// Bits kFrom .. kFrom + kWidth - 1 of each byte, moved to kTo; the byte's other bits are zero.
template <int kFrom, int kTo>
LOCI_LANES Bytes64 move_bits(Bytes64 a) {
  if constexpr (kFrom == kTo) return a;
  if constexpr (kFrom > kTo) return _mm512_srli_epi16(a, kFrom - kTo);
  if constexpr (kFrom < kTo) return _mm512_slli_epi16(a, kTo - kFrom);
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 take_bits(Bytes64 a) {
  return _mm512_and_si512(move_bits<kFrom, kTo>(a), _mm512_set1_epi8(((1 << kWidth) - 1) << kTo));
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 merge_bits(Bytes64 low, Bytes64 from) {
  const Bytes64 mask = _mm512_set1_epi8(((1 << kWidth) - 1) << kTo);
  const Bytes64 moved = move_bits<kFrom, kTo>(from);
  return _mm512_ternarylogic_epi64(low, moved, mask, 0xf8);  // low | (moved & mask)
}
LOCI_LANES Bytes64 lookup(const u8* table, Bytes64 index) {
  const __m128i once = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(once), index);
}
LOCI_LANES Bytes64 wide_bytes(Bytes64 a) { return a; }
LOCI_LANES I32x16 all_four_bytes(const void* p) {
  i32 x;
  __builtin_memcpy(&x, p, 4);
  return _mm512_set1_epi32(x);
}

using ProductSum = __m512i;
constexpr int kSumCapacity = 1 << 20;
constexpr bool kSumsHoldBias = true;
constexpr int kWideBias = 0;
LOCI_LANES ProductSum zero_sum() { return _mm512_setzero_si512(); }
LOCI_LANES void add_products(ProductSum& sum, Bytes64 weights, const u8* x) {
  sum = _mm512_dpbusd_epi32(sum, weights, all_four_bytes(x));
}
// The same for row r of some sums with a vector of weights each.
template <int kVectors, int kRows>
LOCI_LANES void add_products_each(ProductSum (&sum)[kVectors][kRows], int r,
                                  const Bytes64 (&weights)[kVectors], const u8* x) {
  const __m512i four = all_four_bytes(x);
  LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
    sum[v][r] = _mm512_dpbusd_epi32(sum[v][r], weights[v], four);
    asm volatile("" : "+v"(sum[v][r]));
  }
}
template <int kFactor>
LOCI_LANES I32x16 total(ProductSum sum) {
  static_assert(kFactor == 1);
  return sum;
}
template <int kFirst, int kSecond>
LOCI_LANES I32x16 sub_sums(I32x16 dot, const i32* sums) {
  const __m512i factors =
      _mm512_set1_epi32((-kFirst & 0xffff) | static_cast<i32>(static_cast<u32>(-kSecond) << 16));
  return add(dot, _mm512_madd_epi16(factors, all_four_bytes(sums)));  // no addition where dot is zero
}
LOCI_LANES I32x16 times_sums(I32x16 first, I32x16 second, const i32* sums) {
  const __m512i factors = _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
  return _mm512_dpwssd_epi32(_mm512_setzero_si512(), factors, all_four_bytes(sums));
}
LOCI_LANES I32x16 load_low_nibbles(const u8* p) {
  return _mm512_and_si512(load_u8(p), _mm512_set1_epi32(15));
}
LOCI_LANES I32x16 load_high_nibbles(const u8* p) { return _mm512_srli_epi32(load_u8(p), 4); }

// Quarter q of 16 bytes: the low and the high bytes of a's four tokens 4q .. 4q + 3, then those of b's.
LOCI_LANES void store_weights(u8* p, I32x16 a, I32x16 b) {
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13));
  const __m512i first = _mm512_shuffle_epi8(a, order);
  store_bytes(p, _mm512_mask_shuffle_epi8(first, 0xff00ff00ff00ff00ull, b, order));
}
using ValueBytes = __m512i;
struct ValueSum {
  __m512i low, high;
};
LOCI_LANES ValueBytes load_values(const u8* p) { return load_bytes(p); }
LOCI_LANES ValueSum zero_value_sum() { return {zero_i32(), zero_i32()}; }
LOCI_LANES void add_weighted(ValueSum& sum, ValueBytes values, const u8* weights, u32 quad) {
  const u8* four = weights + quad % 4 * 16 + quad / 4 * 8;
  sum.low = _mm512_dpbusd_epi32(sum.low, all_four_bytes(four), values);
  sum.high = _mm512_dpbusd_epi32(sum.high, all_four_bytes(four + 4), values);
  // Or the compiler would copy sums to the stack and back.
  asm volatile("" : "+v"(sum.low), "+v"(sum.high));
}
LOCI_LANES I32x16 value_total(ValueSum sum) { return add(sum.low, _mm512_slli_epi32(sum.high, 8)); }

// How much of a kernel's work fits into this set's registers. No bits depend on these.
constexpr int kTileRows = 12;           // activation rows of a product
constexpr int kAttentionRows = 12;      // queries of an attention partial
constexpr int kScoreVectors = 2;        // vectors of 16 tokens
constexpr int kValueAccumulators = 24;  // rows * vectors of 16 dimensions
constexpr int kScoreRows = 6;           // queries of q8 scores
constexpr int kValueSums = 12;          // ValueSums
constexpr int kValueVectors = 2;        // vectors of 16 dimensions, for many queries
constexpr int kFarBytes = 4 * 4096;     // a line of weights is fetched so far ahead too
