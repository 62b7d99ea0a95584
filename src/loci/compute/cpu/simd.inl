// The sixteen virtual lanes that all float sums are defined over, for one instruction set. Included once
// by each kernels_*.cc inside its own namespace, with LOCI_ISA_AVX512, LOCI_ISA_AVX2 or nothing (plain)
// defined. The three give the same bits: every operation is exact or rounded once, and reductions go
// through one fixed tree. Only intrinsics and plain C here: an inline function of the standard library,
// compiled for AVX-512, could be the copy that the linker keeps for all.

#if defined(LOCI_ISA_AVX512)

using F32x16 = __m512;
using I32x16 = __m512i;
using U8x64 = __m512i;

inline F32x16 zero() { return _mm512_setzero_ps(); }
inline F32x16 broadcast(float x) { return _mm512_set1_ps(x); }
inline F32x16 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F32x16 x) { _mm512_storeu_ps(p, x); }
inline F32x16 add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
inline F32x16 sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
inline F32x16 mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
inline F32x16 div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
inline F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
inline F32x16 absolute(F32x16 a) { return _mm512_abs_ps(a); }
inline F32x16 round_even(F32x16 a) { return _mm512_roundscale_ps(a, 0x08); }
inline F32x16 load_f16(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_f16(std::uint16_t* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, 0x08));
}
inline F32x16 load_bf16(const std::uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline F32x16 power_of_two(F32x16 whole) {
  const I32x16 exponent = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}
// a < b ? x : y
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
// Lanes [0, count) of x, 0 beyond.
inline F32x16 keep_first(F32x16 x, int count) {
  return _mm512_maskz_mov_ps(static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << count) - 1), x);
}
// Rounds to int8, ties to even; |x| <= 127.
inline void store_i8(std::int8_t* p, F32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}

inline I32x16 izero() { return _mm512_setzero_si512(); }
inline I32x16 ibroadcast(std::int32_t x) { return _mm512_set1_epi32(x); }
inline I32x16 iadd(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
inline I32x16 isub(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
inline I32x16 imul(I32x16 a, I32x16 b) { return _mm512_mullo_epi32(a, b); }
inline F32x16 to_float(I32x16 a) { return _mm512_cvtepi32_ps(a); }
inline I32x16 load_i8(const std::int8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline U8x64 load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline U8x64 low_nibbles(U8x64 x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline U8x64 high_nibbles(U8x64 x) {
  return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
// acc[lane] += sum over j < 4 of w[4 lane + j] * x.byte[j]; w unsigned, x signed. Exact.
inline I32x16 dot_small(I32x16 acc, U8x64 w, std::int32_t x) {  // w <= 127
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}
inline I32x16 dot_full(I32x16 acc, U8x64 w, std::int32_t x) {  // any w; x >= -127
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}

#elif defined(LOCI_ISA_AVX2)

struct F32x16 { __m256 low, high; };
struct I32x16 { __m256i low, high; };
struct U8x64 { __m256i low, high; };

inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
inline F32x16 add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline F32x16 sub(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline F32x16 mul(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline F32x16 div(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline F32x16 absolute(F32x16 a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(a.low, mask), _mm256_and_ps(a.high, mask)};
}
inline F32x16 round_even(F32x16 a) { return {_mm256_round_ps(a.low, 0x08), _mm256_round_ps(a.high, 0x08)}; }
inline F32x16 load_f16(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline void store_f16(std::uint16_t* p, F32x16 x) {
  auto* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(x.low, 0x08));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.high, 0x08));
}
inline F32x16 load_bf16(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  const auto widen = [](__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  };
  return {widen(_mm_loadu_si128(q)), widen(_mm_loadu_si128(q + 1))};
}
inline F32x16 power_of_two(F32x16 whole) {
  const auto one = [](__m256 x) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  };
  return {one(whole.low), one(whole.high)};
}
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline F32x16 keep_first(F32x16 x, int count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto mask = [&](int n) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)); };
  return {_mm256_and_ps(x.low, mask(count)), _mm256_and_ps(x.high, mask(count - 8))};
}
inline void store_i8(std::int8_t* p, F32x16 x) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline I32x16 izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I32x16 ibroadcast(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I32x16 iadd(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline I32x16 isub(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline I32x16 imul(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
inline F32x16 to_float(I32x16 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline I32x16 load_i8(const std::int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline U8x64 load_bytes(const std::uint8_t* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline U8x64 low_nibbles(U8x64 x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
inline U8x64 high_nibbles(U8x64 x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(x.low, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(x.high, 4), mask)};
}
inline I32x16 dot_small(I32x16 acc, U8x64 w, std::int32_t x) {
  const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi32(x);
  return {_mm256_add_epi32(acc.low, _mm256_madd_epi16(_mm256_maddubs_epi16(w.low, b), ones)),
          _mm256_add_epi32(acc.high, _mm256_madd_epi16(_mm256_maddubs_epi16(w.high, b), ones))};
}
// Pairs of products with w up to 255 would saturate: the unsigned bytes become signed ones by -128, whose
// sign is moved to x; 128 times the sum of x is added back.
inline I32x16 dot_full(I32x16 acc, U8x64 w, std::int32_t x) {
  const __m256i ones8 = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1), b = _mm256_set1_epi32(x);
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  const __m256i sum = _mm256_slli_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(ones8, b), ones), 7);
  const auto one = [&](__m256i acc8, __m256i bytes) {
    const __m256i s = _mm256_xor_si256(bytes, flip);
    const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(b, s));
    return _mm256_add_epi32(_mm256_add_epi32(acc8, sum), _mm256_madd_epi16(products, ones));
  };
  return {one(acc.low, w.low), one(acc.high, w.high)};
}

#else  // plain

struct F32x16 { float v[16]; };
struct I32x16 { std::int32_t v[16]; };
struct U8x64 { std::uint8_t v[64]; };

template <class R, class F>
inline R lanes(F f) {
  R r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}
inline F32x16 zero() { return {}; }
inline F32x16 broadcast(float x) { return lanes<F32x16>([&](int) { return x; }); }
inline F32x16 load(const float* p) { return lanes<F32x16>([&](int i) { return p[i]; }); }
inline void store(float* p, F32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = x.v[i];
}
inline F32x16 add(F32x16 a, F32x16 b) { return lanes<F32x16>([&](int i) { return a.v[i] + b.v[i]; }); }
inline F32x16 sub(F32x16 a, F32x16 b) { return lanes<F32x16>([&](int i) { return a.v[i] - b.v[i]; }); }
inline F32x16 mul(F32x16 a, F32x16 b) { return lanes<F32x16>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F32x16 div(F32x16 a, F32x16 b) { return lanes<F32x16>([&](int i) { return a.v[i] / b.v[i]; }); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return lanes<F32x16>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
// As the instruction: the second operand where either is NaN or both are zeros.
inline F32x16 max(F32x16 a, F32x16 b) {
  return lanes<F32x16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return lanes<F32x16>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 absolute(F32x16 a) { return lanes<F32x16>([&](int i) { return __builtin_fabsf(a.v[i]); }); }
inline F32x16 round_even(F32x16 a) { return lanes<F32x16>([&](int i) { return __builtin_rintf(a.v[i]); }); }
inline F32x16 load_f16(const std::uint16_t* p) {
  return lanes<F32x16>([&](int i) { return ::loci::f16_to_f32(p[i]); });
}
inline void store_f16(std::uint16_t* p, F32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = ::loci::f32_to_f16(x.v[i]);
}
inline F32x16 load_bf16(const std::uint16_t* p) {
  return lanes<F32x16>([&](int i) { return ::loci::bf16_to_f32(p[i]); });
}
inline F32x16 power_of_two(F32x16 whole) {
  return lanes<F32x16>([&](int i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole.v[i]) + 127) << 23;
    float result;
    __builtin_memcpy(&result, &bits, 4);
    return result;
  });
}
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return lanes<F32x16>([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
inline F32x16 keep_first(F32x16 x, int count) {
  return lanes<F32x16>([&](int i) { return i < count ? x.v[i] : 0.0f; });
}
inline void store_i8(std::int8_t* p, F32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(__builtin_rintf(x.v[i]));
}
inline I32x16 izero() { return {}; }
inline I32x16 ibroadcast(std::int32_t x) { return lanes<I32x16>([&](int) { return x; }); }
inline I32x16 iadd(I32x16 a, I32x16 b) { return lanes<I32x16>([&](int i) { return a.v[i] + b.v[i]; }); }
inline I32x16 isub(I32x16 a, I32x16 b) { return lanes<I32x16>([&](int i) { return a.v[i] - b.v[i]; }); }
inline I32x16 imul(I32x16 a, I32x16 b) { return lanes<I32x16>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F32x16 to_float(I32x16 a) { return lanes<F32x16>([&](int i) { return static_cast<float>(a.v[i]); }); }
inline I32x16 load_i8(const std::int8_t* p) { return lanes<I32x16>([&](int i) { return p[i]; }); }
inline U8x64 load_bytes(const std::uint8_t* p) {
  U8x64 r;
  for (int i = 0; i < 64; ++i) r.v[i] = p[i];
  return r;
}
inline U8x64 low_nibbles(U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] &= 15;
  return x;
}
inline U8x64 high_nibbles(U8x64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] = static_cast<std::uint8_t>(x.v[i] >> 4);
  return x;
}
inline I32x16 dot_full(I32x16 acc, U8x64 w, std::int32_t x) {
  std::int8_t b[4];
  __builtin_memcpy(b, &x, 4);
  return lanes<I32x16>([&](int i) {
    const std::uint8_t* q = w.v + 4 * i;
    return acc.v[i] + q[0] * b[0] + q[1] * b[1] + q[2] * b[2] + q[3] * b[3];
  });
}
inline I32x16 dot_small(I32x16 acc, U8x64 w, std::int32_t x) { return dot_full(acc, w, x); }

#endif

// The one tree: lanes i and i + 8, then 4, 2, 1.
inline float reduce_add(F32x16 x) {
  float v[16];
  store(v, x);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] = v[i] + v[i + step];
  }
  return v[0];
}
inline float reduce_max(F32x16 x) {
  float v[16];
  store(v, x);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] = v[i] > v[i + step] ? v[i] : v[i + step];
  }
  return v[0];
}

// e^x with a relative error below 2^-22; 0 below -87, bounded at 88. NaN becomes e^88.
inline F32x16 exponential(F32x16 x) {
  const F32x16 lowest = broadcast(-87.0f);
  const F32x16 bounded = max(min(x, broadcast(88.0f)), lowest);
  const F32x16 whole = round_even(mul(bounded, broadcast(1.44269504f)));
  F32x16 r = fma(whole, broadcast(-0.693359375f), bounded);
  r = fma(whole, broadcast(2.12194440e-4f), r);
  F32x16 p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = add(fma(mul(p, r), r, r), broadcast(1.0f));
  return select_less(x, lowest, zero(), mul(p, power_of_two(whole)));
}
