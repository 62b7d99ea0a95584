// SPDX-License-Identifier: Apache-2.0
// The 16 lanes as plain loops: the definition that the other instruction sets match. Included inside
// the namespace of one instruction set; simd.h says what each function must compute.

struct F32x16 {
  float v[16];
};
struct I32x16 {
  i32 v[16];
};
struct Bytes64 {
  u8 v[64];
};

#define LOCI_EACH_LANE for (int i = 0; i < 16; ++i)

LOCI_LANES float float_of(u32 bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
LOCI_LANES u32 bits_of_float(float x) {
  u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
LOCI_LANES float f16_value(u16 h) {
  const u32 sign = static_cast<u32>(h & 0x8000) << 16;
  const u32 exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | (mantissa << 13) | (mantissa != 0 ? 0x400000 : 0));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return float_of(sign | bits_of_float(magnitude));
  }
  return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
}
LOCI_LANES u16 f16_bits(float x) {
  const u32 bits = bits_of_float(x);
  const u32 sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<u16>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x47800000) return static_cast<u16>(sign | 0x7c00);  // 2^16 and above
  if (magnitude < 0x38800000) {  // below 2^-14: a multiple of 2^-24, rounded by the addition
    const u32 sum = bits_of_float(float_of(magnitude) + 0.5f);
    return static_cast<u16>(sign | (sum - 0x3f000000));
  }
  const u32 rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<u16>(sign | ((rounded - 0x38000000) >> 13));
}

LOCI_LANES F32x16 all_f32(float x) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = x;
  return r;
}
LOCI_LANES F32x16 zero_f32() { return all_f32(0); }
LOCI_LANES F32x16 load_f32(const float* p) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = p[i];
  return r;
}
LOCI_LANES F32x16 load_f32_8(const float* p) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = i < 8 ? p[i] : 0;
  return r;
}
LOCI_LANES void store_f32(float* p, const F32x16& x) { LOCI_EACH_LANE p[i] = x.v[i]; }
LOCI_LANES void store_f32_8(float* p, const F32x16& x) {
  for (int i = 0; i < 8; ++i) p[i] = x.v[i];
}
LOCI_LANES F32x16 load_f16(const u16* p) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = f16_value(p[i]);
  return r;
}
LOCI_LANES F32x16 load_f16_8(const u16* p) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = i < 8 ? f16_value(p[i]) : 0;
  return r;
}
LOCI_LANES void store_f16(u16* p, const F32x16& x) { LOCI_EACH_LANE p[i] = f16_bits(x.v[i]); }
LOCI_LANES F32x16 load_bf16(const u16* p) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = float_of(static_cast<u32>(p[i]) << 16);
  return r;
}

LOCI_LANES F32x16 add(F32x16 x, const F32x16& y) {
  LOCI_EACH_LANE x.v[i] += y.v[i];
  return x;
}
LOCI_LANES F32x16 sub(F32x16 x, const F32x16& y) {
  LOCI_EACH_LANE x.v[i] -= y.v[i];
  return x;
}
LOCI_LANES F32x16 mul(F32x16 x, const F32x16& y) {
  LOCI_EACH_LANE x.v[i] *= y.v[i];
  return x;
}
LOCI_LANES F32x16 div(F32x16 x, const F32x16& y) {
  LOCI_EACH_LANE x.v[i] /= y.v[i];
  return x;
}
LOCI_LANES F32x16 fma(F32x16 x, const F32x16& y, const F32x16& z) {
  LOCI_EACH_LANE x.v[i] = __builtin_fmaf(x.v[i], y.v[i], z.v[i]);
  return x;
}
LOCI_LANES F32x16 max(F32x16 x, const F32x16& y) {
  LOCI_EACH_LANE x.v[i] = x.v[i] > y.v[i] ? x.v[i] : y.v[i];
  return x;
}
LOCI_LANES F32x16 min(F32x16 x, const F32x16& y) {
  LOCI_EACH_LANE x.v[i] = x.v[i] < y.v[i] ? x.v[i] : y.v[i];
  return x;
}
LOCI_LANES F32x16 abs(F32x16 x) {
  LOCI_EACH_LANE x.v[i] = float_of(bits_of_float(x.v[i]) & 0x7fffffff);
  return x;
}
LOCI_LANES F32x16 swap_neighbours(const F32x16& x) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = x.v[i ^ 1];
  return r;
}
LOCI_LANES F32x16 first_lanes(F32x16 x, int count, const F32x16& other) {
  LOCI_EACH_LANE x.v[i] = i < count ? x.v[i] : other.v[i];
  return x;
}
LOCI_LANES F32x16 to_f32(const I32x16& x) {
  F32x16 r;
  LOCI_EACH_LANE r.v[i] = static_cast<float>(x.v[i]);
  return r;
}
LOCI_LANES I32x16 bits_of(const F32x16& x) {
  I32x16 r;
  __builtin_memcpy(&r, &x, 64);
  return r;
}
LOCI_LANES F32x16 from_bits(const I32x16& x) {
  F32x16 r;
  __builtin_memcpy(&r, &x, 64);
  return r;
}
LOCI_LANES I32x16 all_i32(i32 x) {
  I32x16 r;
  LOCI_EACH_LANE r.v[i] = x;
  return r;
}
LOCI_LANES I32x16 zero_i32() { return all_i32(0); }
LOCI_LANES I32x16 add(I32x16 x, const I32x16& y) {
  LOCI_EACH_LANE x.v[i] = static_cast<i32>(static_cast<u32>(x.v[i]) + static_cast<u32>(y.v[i]));
  return x;
}
LOCI_LANES I32x16 sub(I32x16 x, const I32x16& y) {
  LOCI_EACH_LANE x.v[i] = static_cast<i32>(static_cast<u32>(x.v[i]) - static_cast<u32>(y.v[i]));
  return x;
}
LOCI_LANES I32x16 mul(I32x16 x, const I32x16& y) {
  LOCI_EACH_LANE x.v[i] = static_cast<i32>(static_cast<u32>(x.v[i]) * static_cast<u32>(y.v[i]));
  return x;
}
LOCI_LANES I32x16 shift_left_23(I32x16 x) {
  LOCI_EACH_LANE x.v[i] = static_cast<i32>(static_cast<u32>(x.v[i]) << 23);
  return x;
}
LOCI_LANES I32x16 load_i32(const i32* p) {
  I32x16 r;
  LOCI_EACH_LANE r.v[i] = p[i];
  return r;
}
LOCI_LANES I32x16 load_i8(const u8* p) {
  I32x16 r;
  LOCI_EACH_LANE r.v[i] = static_cast<i8>(p[i]);
  return r;
}
LOCI_LANES void store_low_bytes(u8* p, const I32x16& x) { LOCI_EACH_LANE p[i] = static_cast<u8>(x.v[i]); }
LOCI_LANES void sums_i32(const I32x16& x, const I32x16& y, i32& sum_x, i32& sum_y) {
  sum_x = sum_y = 0;
  LOCI_EACH_LANE {
    sum_x += x.v[i];
    sum_y += y.v[i];
  }
}
LOCI_LANES float sum_f32(F32x16 x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
  }
  return x.v[0];
}
LOCI_LANES float max_f32(F32x16 x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  }
  return x.v[0];
}

// --- bytes ---
LOCI_LANES Bytes64 load_bytes(const u8* p) {
  Bytes64 r;
  __builtin_memcpy(&r, p, 64);
  return r;
}
LOCI_LANES void store_bytes(u8* p, const Bytes64& x) { __builtin_memcpy(p, &x, 64); }
// Bits kFrom .. kFrom + kWidth - 1 of each byte, moved to kTo; the byte's other bits are zero.
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 take_bits(Bytes64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] = static_cast<u8>(((x.v[i] >> kFrom) & ((1 << kWidth) - 1)) << kTo);
  return x;
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 merge_bits(Bytes64 low, const Bytes64& from) {
  const Bytes64 moved = take_bits<kFrom, kWidth, kTo>(from);
  for (int i = 0; i < 64; ++i) low.v[i] |= moved.v[i];
  return low;
}
LOCI_LANES Bytes64 lookup(const u8* table, Bytes64 index) {
  for (int i = 0; i < 64; ++i) index.v[i] = table[index.v[i]];
  return index;
}
LOCI_LANES Bytes64 wide_bytes(const Bytes64& x) { return x; }

using ProductSum = I32x16;
constexpr int kSumCapacity = 1 << 20;
constexpr bool kSumsHoldBias = false;
constexpr int kWideBias = 0;
LOCI_LANES ProductSum zero_sum() { return zero_i32(); }
LOCI_LANES void add_products(ProductSum& sum, const Bytes64& weights, const u8* x) {
  LOCI_EACH_LANE {
    i32 dot = 0;
    for (int j = 0; j < 4; ++j) dot += static_cast<i32>(weights.v[4 * i + j]) * static_cast<i8>(x[j]);
    sum.v[i] += dot;
  }
}
template <int kFactor>
LOCI_LANES I32x16 total(const ProductSum& sum) {
  static_assert(kFactor == 1);
  return sum;
}
LOCI_LANES i32 first_sum(i32 sums) { return static_cast<int16_t>(sums & 0xffff); }
LOCI_LANES i32 second_sum(i32 sums) { return sums >> 16; }
template <int kFirst, int kSecond>
LOCI_LANES I32x16 sub_sums(const I32x16& dot, const i32* sums) {
  return sub(dot, all_i32(kFirst * first_sum(*sums) + kSecond * second_sum(*sums)));
}
LOCI_LANES I32x16 times_sums(const I32x16& first, const I32x16& second, const i32* sums) {
  return add(mul(first, all_i32(first_sum(*sums))), mul(second, all_i32(second_sum(*sums))));
}
LOCI_LANES I32x16 load_low_nibbles(const u8* p) {
  I32x16 r;
  LOCI_EACH_LANE r.v[i] = p[i] & 15;
  return r;
}
LOCI_LANES I32x16 load_high_nibbles(const u8* p) {
  I32x16 r;
  LOCI_EACH_LANE r.v[i] = p[i] >> 4;
  return r;
}

LOCI_LANES I32x16 load_u8(const u8* p) {
  I32x16 r;
  LOCI_EACH_LANE r.v[i] = p[i];
  return r;
}
LOCI_LANES void store_weights(u8* p, const I32x16& x, const I32x16& y) {
  LOCI_EACH_LANE {
    const u16 first = static_cast<u16>(x.v[i]), second = static_cast<u16>(y.v[i]);
    __builtin_memcpy(p + 2 * i, &first, 2);
    __builtin_memcpy(p + 32 + 2 * i, &second, 2);
  }
}
using ValueBytes = Bytes64;
using ValueSum = I32x16;
LOCI_LANES ValueBytes load_values(const u8* p) { return load_bytes(p); }
LOCI_LANES ValueSum zero_value_sum() { return zero_i32(); }
LOCI_LANES void add_weighted(ValueSum& sum, const ValueBytes& values, const u8* weights, u32 quad) {
  u16 four[4];
  __builtin_memcpy(four, weights + 8 * quad, 8);
  LOCI_EACH_LANE {
    for (int j = 0; j < 4; ++j) sum.v[i] += static_cast<i8>(values.v[4 * i + j]) * static_cast<i32>(four[j]);
  }
}
LOCI_LANES I32x16 value_total(const ValueSum& sum) { return sum; }

#undef LOCI_EACH_LANE

// How much of a kernel's work fits into this set's registers. No bits depend on these.
constexpr int kTileRows = 4;           // activation rows of a product
constexpr int kAttentionRows = 4;      // queries of an attention partial
constexpr int kScoreVectors = 1;       // vectors of 16 tokens
constexpr int kValueAccumulators = 4;  // rows * vectors of 16 dimensions
constexpr int kScoreRows = 4;          // queries of q8 scores
constexpr int kValueSums = 4;          // ValueSums
constexpr int kValueVectors = 1;       // vectors of 16 dimensions, for many queries
constexpr int kFarBytes = 0;           // a line of weights is fetched so far ahead too: not tried
