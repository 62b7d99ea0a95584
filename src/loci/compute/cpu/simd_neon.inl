// SPDX-License-Identifier: Apache-2.0
// The 16 lanes on 64-bit Arm with the dot product instructions (ASIMDDP): four registers. Included inside the
// namespace of one instruction set; simd.h says what each function must compute.

struct F32x16 {
  float32x4_t v[4];
};
struct I32x16 {
  int32x4_t v[4];
};
struct Bytes64 {
  uint8x16_t v[4];
};

// r.v[q] of each of the four registers.
#define LOCI_QUARTERS(type, expression)                                      \
  type r;                                                                    \
  _Pragma("GCC unroll 4") for (int q = 0; q < 4; ++q) r.v[q] = (expression); \
  return r

LOCI_LANES F32x16 all_f32(float x) { LOCI_QUARTERS(F32x16, vdupq_n_f32(x)); }
LOCI_LANES F32x16 zero_f32() { return all_f32(0); }
LOCI_LANES F32x16 load_f32(const float* p) { LOCI_QUARTERS(F32x16, vld1q_f32(p + 4 * q)); }
LOCI_LANES F32x16 load_f32_8(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vdupq_n_f32(0), vdupq_n_f32(0)}};
}
LOCI_LANES void store_f32(float* p, const F32x16& x) {
  LOCI_UNROLL for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, x.v[q]);
}
LOCI_LANES void store_f32_8(float* p, const F32x16& x) {
  vst1q_f32(p, x.v[0]);
  vst1q_f32(p + 4, x.v[1]);
}
LOCI_LANES float32x4_t widen_f16(const u16* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
LOCI_LANES F32x16 load_f16(const u16* p) { LOCI_QUARTERS(F32x16, widen_f16(p + 4 * q)); }
LOCI_LANES F32x16 load_f16_8(const u16* p) {
  return {{widen_f16(p), widen_f16(p + 4), vdupq_n_f32(0), vdupq_n_f32(0)}};
}
LOCI_LANES void store_f16(u16* p, const F32x16& x) {
  LOCI_UNROLL for (int q = 0; q < 4; ++q) vst1_u16(p + 4 * q, vreinterpret_u16_f16(vcvt_f16_f32(x.v[q])));
}
LOCI_LANES F32x16 load_bf16(const u16* p) {
  LOCI_QUARTERS(F32x16, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * q), 16)));
}

LOCI_LANES F32x16 add(const F32x16& x, const F32x16& y) { LOCI_QUARTERS(F32x16, vaddq_f32(x.v[q], y.v[q])); }
LOCI_LANES F32x16 sub(const F32x16& x, const F32x16& y) { LOCI_QUARTERS(F32x16, vsubq_f32(x.v[q], y.v[q])); }
LOCI_LANES F32x16 mul(const F32x16& x, const F32x16& y) { LOCI_QUARTERS(F32x16, vmulq_f32(x.v[q], y.v[q])); }
LOCI_LANES F32x16 div(const F32x16& x, const F32x16& y) { LOCI_QUARTERS(F32x16, vdivq_f32(x.v[q], y.v[q])); }
LOCI_LANES F32x16 fma(const F32x16& x, const F32x16& y, const F32x16& z) {
  LOCI_QUARTERS(F32x16, vfmaq_f32(z.v[q], x.v[q], y.v[q]));
}
// Comparisons, because FMAX and FMIN treat NaN and the signs of zero otherwise.
LOCI_LANES F32x16 max(const F32x16& x, const F32x16& y) {
  LOCI_QUARTERS(F32x16, vbslq_f32(vcgtq_f32(x.v[q], y.v[q]), x.v[q], y.v[q]));
}
LOCI_LANES F32x16 min(const F32x16& x, const F32x16& y) {
  LOCI_QUARTERS(F32x16, vbslq_f32(vcltq_f32(x.v[q], y.v[q]), x.v[q], y.v[q]));
}
LOCI_LANES F32x16 abs(const F32x16& x) { LOCI_QUARTERS(F32x16, vabsq_f32(x.v[q])); }
LOCI_LANES F32x16 swap_neighbours(const F32x16& x) { LOCI_QUARTERS(F32x16, vrev64q_f32(x.v[q])); }
LOCI_LANES F32x16 first_lanes(const F32x16& x, int count, const F32x16& other) {
  static const i32 kLane[4] = {0, 1, 2, 3};
  const int32x4_t lane = vld1q_s32(kLane);
  LOCI_QUARTERS(F32x16, vbslq_f32(vcltq_s32(lane, vdupq_n_s32(count - 4 * q)), x.v[q], other.v[q]));
}
LOCI_LANES F32x16 to_f32(const I32x16& x) { LOCI_QUARTERS(F32x16, vcvtq_f32_s32(x.v[q])); }
LOCI_LANES I32x16 bits_of(const F32x16& x) { LOCI_QUARTERS(I32x16, vreinterpretq_s32_f32(x.v[q])); }
LOCI_LANES F32x16 from_bits(const I32x16& x) { LOCI_QUARTERS(F32x16, vreinterpretq_f32_s32(x.v[q])); }
LOCI_LANES I32x16 all_i32(i32 x) { LOCI_QUARTERS(I32x16, vdupq_n_s32(x)); }
LOCI_LANES I32x16 zero_i32() { return all_i32(0); }
LOCI_LANES I32x16 add(const I32x16& x, const I32x16& y) { LOCI_QUARTERS(I32x16, vaddq_s32(x.v[q], y.v[q])); }
LOCI_LANES I32x16 sub(const I32x16& x, const I32x16& y) { LOCI_QUARTERS(I32x16, vsubq_s32(x.v[q], y.v[q])); }
LOCI_LANES I32x16 mul(const I32x16& x, const I32x16& y) { LOCI_QUARTERS(I32x16, vmulq_s32(x.v[q], y.v[q])); }
LOCI_LANES I32x16 shift_left_23(const I32x16& x) { LOCI_QUARTERS(I32x16, vshlq_n_s32(x.v[q], 23)); }
LOCI_LANES I32x16 load_i8(const u8* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
           vmovl_s16(vget_high_s16(high))}};
}
LOCI_LANES void store_low_bytes(u8* p, const I32x16& x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.v[0]), vmovn_s32(x.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.v[2]), vmovn_s32(x.v[3]));
  vst1q_u8(p, vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high))));
}
LOCI_LANES i32 sum_i32(const I32x16& x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}
LOCI_LANES void sums_i32(const I32x16& x, const I32x16& y, i32& sum_x, i32& sum_y) {
  sum_x = sum_i32(x);
  sum_y = sum_i32(y);
}
LOCI_LANES float sum_f32(const F32x16& x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
LOCI_LANES float32x4_t max_of(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
LOCI_LANES float max_f32(const F32x16& x) {
  const float32x4_t four = max_of(max_of(x.v[0], x.v[2]), max_of(x.v[1], x.v[3]));
  const float a = vgetq_lane_f32(four, 0), b = vgetq_lane_f32(four, 1);
  const float c = vgetq_lane_f32(four, 2), d = vgetq_lane_f32(four, 3);
  const float ac = a > c ? a : c, bd = b > d ? b : d;
  return ac > bd ? ac : bd;
}

// --- bytes ---
LOCI_LANES Bytes64 load_bytes(const u8* p) { LOCI_QUARTERS(Bytes64, vld1q_u8(p + 16 * q)); }
// Bits kFrom .. kFrom + kWidth - 1 of each byte, moved to kTo; the byte's other bits are zero.
template <int kFrom, int kWidth, int kTo>
LOCI_LANES uint8x16_t take_bits_of(uint8x16_t x) {
  const uint8x16_t mask = vdupq_n_u8(static_cast<u8>(((1 << kWidth) - 1) << kTo));
  if constexpr (kFrom > kTo) x = vshrq_n_u8(x, kFrom - kTo);
  if constexpr (kFrom < kTo) x = vshlq_n_u8(x, kTo - kFrom);
  return vandq_u8(x, mask);
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 take_bits(const Bytes64& x) {
  LOCI_QUARTERS(Bytes64, (take_bits_of<kFrom, kWidth, kTo>(x.v[q])));
}
template <int kFrom, int kWidth, int kTo>
LOCI_LANES Bytes64 merge_bits(const Bytes64& low, const Bytes64& from) {
  LOCI_QUARTERS(Bytes64, vorrq_u8(low.v[q], (take_bits_of<kFrom, kWidth, kTo>(from.v[q]))));
}
LOCI_LANES Bytes64 lookup(const u8* table, const Bytes64& index) {
  const uint8x16_t entries = vld1q_u8(table);
  LOCI_QUARTERS(Bytes64, vqtbl1q_u8(entries, index.v[q]));
}

// The dot product is of signed bytes: what may exceed 127 is taken 128 less.
LOCI_LANES Bytes64 wide_bytes(const Bytes64& x) {
  LOCI_QUARTERS(Bytes64, veorq_u8(x.v[q], vdupq_n_u8(0x80)));
}
using ProductSum = I32x16;
constexpr int kSumCapacity = 1 << 20;
constexpr bool kSumsHoldBias = false;
constexpr int kWideBias = 128;
LOCI_LANES ProductSum zero_sum() { return zero_i32(); }
LOCI_LANES void add_products(ProductSum& sum, const Bytes64& weights, const u8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  LOCI_UNROLL for (int q = 0; q < 4; ++q) {
    sum.v[q] = vdotq_s32(sum.v[q], vreinterpretq_s8_u8(weights.v[q]), all);
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
  const I32x16 bytes = load_i8(p);
  LOCI_QUARTERS(I32x16, vandq_s32(bytes.v[q], vdupq_n_s32(15)));
}
LOCI_LANES I32x16 load_high_nibbles(const u8* p) {
  const I32x16 bytes = load_i8(p);
  LOCI_QUARTERS(I32x16, vandq_s32(vshrq_n_s32(bytes.v[q], 4), vdupq_n_s32(15)));
}

LOCI_LANES I32x16 load_u8(const u8* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}
// Weights of 16 tokens are two planes, of the low 7 bits and of the others: 16 bytes each.
LOCI_LANES void store_16_weights(u8* p, const I32x16& x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.v[0]), vmovn_s32(x.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.v[2]), vmovn_s32(x.v[3]));
  const uint8x16_t bytes = vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  const uint8x16_t upper = vreinterpretq_u8_s8(vcombine_s8(vshrn_n_s16(low, 7), vshrn_n_s16(high, 7)));
  vst1q_u8(p, vandq_u8(bytes, vdupq_n_u8(127)));
  vst1q_u8(p + 16, upper);
}
LOCI_LANES void store_weights(u8* p, const I32x16& x, const I32x16& y) {
  store_16_weights(p, x);
  store_16_weights(p + 32, y);
}
using ValueBytes = Bytes64;
struct ValueSum {
  I32x16 low, high;
};
LOCI_LANES ValueBytes load_values(const u8* p) { return load_bytes(p); }
LOCI_LANES ValueSum zero_value_sum() { return {zero_i32(), zero_i32()}; }
LOCI_LANES void add_weighted(ValueSum& sum, const ValueBytes& values, const u8* weights, u32 quad) {
  const u8* four = weights + quad / 4 * 32 + quad % 4 * 4;
  add_products(sum.low, values, four);
  add_products(sum.high, values, four + 16);
}
LOCI_LANES I32x16 value_total(const ValueSum& sum) {
  LOCI_QUARTERS(I32x16, vaddq_s32(sum.low.v[q], vshlq_n_s32(sum.high.v[q], 7)));
}

#undef LOCI_QUARTERS

// How much of a kernel's work fits into this set's registers. No bits depend on these.
constexpr int kTileRows = 6;           // activation rows of a product
constexpr int kAttentionRows = 6;      // queries of an attention partial
constexpr int kScoreVectors = 1;       // vectors of 16 tokens
constexpr int kValueAccumulators = 6;  // rows * vectors of 16 dimensions
constexpr int kScoreRows = 6;          // queries of q8 scores
constexpr int kValueSums = 3;          // ValueSums
constexpr int kValueVectors = 1;       // vectors of 16 dimensions, for many queries
constexpr int kFarBytes = 0;           // a line of weights is fetched so far ahead too: not tried
