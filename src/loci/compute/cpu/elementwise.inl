// SPDX-License-Identifier: Apache-2.0
// Row kernels between the products: norms, activations, rotation and rounding.

// 2^x for x in [-125, 125], to which x is clamped; relative error below 2e-7. With n = x rounded to an
// integer and f = x - n: 1 + f * P(f), then n is added to the exponent.
LOCI_LANES F32x16 exp2_of_clamped(F32x16 clamped) {
  const F32x16 magic = all_f32(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const F32x16 shifted = add(clamped, magic);
  const F32x16 f = sub(clamped, sub(shifted, magic));
  F32x16 p = all_f32(1.535336188319500e-4f);
  p = fma(p, f, all_f32(1.339887440266574e-3f));
  p = fma(p, f, all_f32(9.618437357674640e-3f));
  p = fma(p, f, all_f32(5.550332471162809e-2f));
  p = fma(p, f, all_f32(2.402264791363012e-1f));
  p = fma(p, f, all_f32(6.931472028550421e-1f));
  p = fma(p, f, all_f32(1.0f));
  return from_bits(add(bits_of(p), shift_left_23(bits_of(shifted))));
}
LOCI_LANES F32x16 exp2_of(F32x16 x) {
  return exp2_of_clamped(min(max(x, all_f32(-125.0f)), all_f32(125.0f)));
}
// The same where x is known to be at most 125 (or NaN).
LOCI_LANES F32x16 exp2_below_125(F32x16 x) { return exp2_of_clamped(max(x, all_f32(-125.0f))); }

// x / (1 + e^-x)
LOCI_LANES F32x16 silu(F32x16 x) {
  const F32x16 power = exp2_of(mul(x, all_f32(-1.44269504088896341f)));
  return div(x, add(all_f32(1.0f), power));
}

// x * P(x^2) / Q(x^2) of two polynomials by Horner's rule; x is clamped to [-limit, limit] first.
template <int kP, int kQ>
LOCI_LANES F32x16 odd_rational(F32x16 x, float limit, const float (&p)[kP], const float (&q)[kQ]) {
  x = min(max(x, all_f32(-limit)), all_f32(limit));
  const F32x16 square = mul(x, x);
  F32x16 above = all_f32(p[kP - 1]), below = all_f32(q[kQ - 1]);
  LOCI_UNROLL for (int i = kP - 2; i >= 0; --i) above = fma(above, square, all_f32(p[i]));
  LOCI_UNROLL for (int i = kQ - 2; i >= 0; --i) below = fma(below, square, all_f32(q[i]));
  return div(mul(x, above), below);
}

// Minimax fits of the relative error over [0, limit]; at the limit both are 1 to within float32.
LOCI_LANES F32x16 tanh_of(F32x16 x) {
  constexpr float kAbove[] = {
      1.0f, 0.130840406f, 3.10398894e-3f, 1.11546342e-5f, -2.02264516e-8f, 5.27848598e-11f, -8.4899576e-14f};
  constexpr float kBelow[] = {1.0f, 0.464173675f, 0.0244953111f, 2.54619197e-4f};
  return odd_rational(x, 9.0f, kAbove, kBelow);
}
LOCI_LANES F32x16 erf_of(F32x16 x) {
  constexpr float kAbove[] = {1.12837911f,    0.207094818f,   0.0515208244f, 3.98918381e-3f,
                              1.47245912e-4f, -1.9420288e-6f, 1.91094998e-8f};
  constexpr float kBelow[] = {1.0f, 0.51686424f, 0.117958121f, 0.0149553958f, 1.02075003e-3f};
  return odd_rational(x, 4.0f, kAbove, kBelow);
}

// The activations, in the order of Activation (model_spec.h). `gate` already is the activation's input;
// `up` is what a gated part multiplies it with.
struct Silu {
  LOCI_LANES F32x16 of(F32x16 x) { return silu(x); }
  LOCI_LANES F32x16 with(F32x16 gate, F32x16 up) { return mul(of(gate), up); }
};
struct Gelu {
  LOCI_LANES F32x16 of(F32x16 x) {
    const F32x16 tail = erf_of(mul(x, all_f32(0.707106781186547524f)));
    return mul(mul(all_f32(0.5f), x), add(all_f32(1.0f), tail));
  }
  LOCI_LANES F32x16 with(F32x16 gate, F32x16 up) { return mul(of(gate), up); }
};
// 0.5 (1 + tanh(u)) = 1 / (1 + e^(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3).
struct GeluTanh {
  LOCI_LANES F32x16 of(F32x16 x) {
    const F32x16 inner = mul(x, fma(mul(x, x), all_f32(0.044715f), all_f32(1.0f)));
    const F32x16 power = exp2_of(mul(inner, all_f32(-2.30220819814432f)));  // -2 sqrt(2 / pi) log2(e)
    return div(x, add(all_f32(1.0f), power));
  }
  LOCI_LANES F32x16 with(F32x16 gate, F32x16 up) { return mul(of(gate), up); }
};
struct Relu {
  LOCI_LANES F32x16 of(F32x16 x) { return max(x, zero_f32()); }
  LOCI_LANES F32x16 with(F32x16 gate, F32x16 up) { return mul(of(gate), up); }
};
// Alone it has no meaning: the backend refuses such a model.
struct ClampedSwiglu {
  LOCI_LANES F32x16 of(F32x16 x) {
    x = min(x, all_f32(7.0f));
    const F32x16 power = exp2_of(mul(x, all_f32(-2.45546695959302f)));  // -1.702 log2(e)
    return div(x, add(all_f32(1.0f), power));
  }
  LOCI_LANES F32x16 with(F32x16 gate, F32x16 up) {
    const F32x16 limited = min(max(up, all_f32(-7.0f)), all_f32(7.0f));
    return mul(of(gate), add(limited, all_f32(1.0f)));
  }
};

template <class Type>
static void gated(const float* gate, const float* up, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) {
    store_f32(out + i, Type::with(load_f32(gate + i), load_f32(up + i)));
  }
}
template <class Type>
static void ungated(const float* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, Type::of(load_f32(x + i)));
}

static void softcap(const float* x, u32 count, float cap, float* out) {
  const F32x16 all = all_f32(cap);
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, mul(all, tanh_of(div(load_f32(x + i), all))));
}

static void add_values(float* x, const float* y, u32 count) {
  for (u32 i = 0; i < count; i += 16) store_f32(x + i, add(load_f32(x + i), load_f32(y + i)));
}

// The sum of squares in four chains (vector i goes to chain i mod 4), (0 + 1) + (2 + 3), then the tree.
static void rms_norm(const float* x, const float* weight, u32 count, u32 padded, float epsilon, float* out) {
  F32x16 chain[4] = {zero_f32(), zero_f32(), zero_f32(), zero_f32()};
  u32 i = 0;
  for (; i + 64 <= padded; i += 64) {
    LOCI_UNROLL for (int c = 0; c < 4; ++c) {
      const F32x16 v = load_f32(x + i + 16 * c);
      chain[c] = fma(v, v, chain[c]);
    }
  }
  LOCI_UNROLL for (int c = 0; c < 3; ++c) {
    if (i + 16 * c >= padded) break;
    const F32x16 v = load_f32(x + i + 16 * c);
    chain[c] = fma(v, v, chain[c]);
  }
  const float square_sum = sum_f32(add(add(chain[0], chain[1]), add(chain[2], chain[3])));
  const F32x16 scale = all_f32(1.0f / __builtin_sqrtf(square_sum / static_cast<float>(count) + epsilon));
  for (i = 0; i < padded; i += 16) {
    store_f32(out + i, mul(mul(load_f32(x + i), scale), load_f32(weight + i)));
  }
}

// Four chains over vectors as in rms_norm: of the values, then of the squares of what is centred.
static void layer_norm(const float* x, const float* weight, const float* bias, u32 count, u32 padded,
                       float epsilon, float* out) {
  F32x16 chain[4] = {zero_f32(), zero_f32(), zero_f32(), zero_f32()};
  for (u32 i = 0; i < padded; i += 16) chain[i / 16 % 4] = add(chain[i / 16 % 4], load_f32(x + i));
  const float total = sum_f32(add(add(chain[0], chain[1]), add(chain[2], chain[3])));
  const F32x16 mean = all_f32(total / static_cast<float>(count));
  LOCI_UNROLL for (int c = 0; c < 4; ++c) chain[c] = zero_f32();
  for (u32 i = 0; i < padded; i += 16) {
    F32x16 v = sub(load_f32(x + i), mean);
    if (count - i < 16) v = first_lanes(v, static_cast<int>(count - i), zero_f32());
    store_f32(out + i, v);
    chain[i / 16 % 4] = fma(v, v, chain[i / 16 % 4]);
  }
  const float square_sum = sum_f32(add(add(chain[0], chain[1]), add(chain[2], chain[3])));
  const F32x16 scale = all_f32(1.0f / __builtin_sqrtf(square_sum / static_cast<float>(count) + epsilon));
  for (u32 i = 0; i < padded; i += 16) {
    const F32x16 y = mul(mul(load_f32(out + i), scale), load_f32(weight + i));
    store_f32(out + i, bias == nullptr ? y : add(y, load_f32(bias + i)));
  }
}

// Blocks of 32 values as bytes with one scale: d = max|x| / 127, q = x * (127 / max|x|) rounded to nearest
// even. Blocks below 2^-100 become zero. Block i has chunks[c][i], its scale, scale_sum and sums
// (kernel_table.h). Of a block that holds infinity or NaN the bytes are not specified, but depend on nothing
// else.
struct FourBlocks {
  alignas(64) i32 chunks[8][4];
  alignas(16) float scales[4];
  alignas(16) float scale_sums[4];
  alignas(16) i32 sums[4];
};
#ifdef LOCI_QUANTIZES_FOUR
LOCI_LANES void quantize_blocks(const float* const (&x)[4], u32, FourBlocks& out) {
  quantize_four(x, out.chunks[0], out.scales, out.scale_sums, out.sums);
}
#else
LOCI_LANES void quantize_blocks(const float* const (&x)[4], u32 count, FourBlocks& out) {
  const F32x16 magic = all_f32(12582912.0f);
  const I32x16 magic_bits = all_i32(0x4b400000);
  for (u32 i = 0; i < count; ++i) {
    const F32x16 a = load_f32(x[i]), b = load_f32(x[i] + 16);
    const float largest = max_f32(max(abs(a), abs(b)));
    const bool zero = largest < 0x1p-100f;
    const float scale = zero ? 0.0f : largest / 127.0f;
    const F32x16 inverse = all_f32(zero ? 0.0f : 127.0f / largest);
    const I32x16 qa = sub(bits_of(add(mul(a, inverse), magic)), magic_bits);
    const I32x16 qb = sub(bits_of(add(mul(b, inverse), magic)), magic_bits);
    u8 bytes[32];
    store_low_bytes(bytes, qa);
    store_low_bytes(bytes + 16, qb);
    for (u32 c = 0; c < 8; ++c) __builtin_memcpy(&out.chunks[c][i], bytes + 4 * c, 4);
    i32 first = 0, second = 0;
    sums_i32(qa, qb, first, second);
    out.scales[i] = scale;
    out.scale_sums[i] = scale * static_cast<float>(first + second);
    out.sums[i] = (first & 0xffff) | static_cast<i32>(static_cast<u32>(second) << 16);
  }
}
#endif

// Block i of `from` is that of row `row` of a tile.
LOCI_LANES void put_block(const FourBlocks& from, u32 i, u8* tile, u32 rows, u32 row) {
  const bool wide = rows >= kWideTileRows;
  u8* chunk = tile + (wide ? 32 : 4) * row;
  for (u32 c = 0; c < 8; ++c, chunk += wide ? 4 : 4 * rows) __builtin_memcpy(chunk, &from.chunks[c][i], 4);
  u8* numbers = tile + 32 * rows + 4 * row;
  __builtin_memcpy(numbers, &from.scales[i], 4);
  __builtin_memcpy(numbers + 4 * rows, &from.scale_sums[i], 4);
  __builtin_memcpy(numbers + 8 * rows, &from.sums[i], 4);
}

// The first `count` of four blocks one after the other.
LOCI_LANES void quantize_next(const float* x, u32 count, FourBlocks& out) {
  quantize_blocks({x, x + (count > 1 ? 32 : 0), x + (count > 2 ? 64 : 0), x + (count > 3 ? 96 : 0)}, count,
                  out);
}

static void quantize(const float* x, u32 blocks, u8* tile, u32 rows, u32 row) {
  const u32 block_bytes = kTileBlockBytes * rows;
  for (u32 block = 0; block < blocks; block += 4, x += 4 * 32, tile += 4 * block_bytes) {
    const u32 count = blocks - block < 4 ? blocks - block : 4;
    FourBlocks four;
    quantize_next(x, count, four);
    for (u32 i = 0; i < count; ++i) put_block(four, i, tile + i * block_bytes, rows, row);
  }
}

static void quantize_rows(const float* x, u8* tile, u32 rows) {
  for (u32 row = 0; row < rows; row += 4, x += 4 * 32) {
    const u32 count = rows - row < 4 ? rows - row : 4;
    FourBlocks four;
    quantize_next(x, count, four);
    if (count < 4 || rows >= kWideTileRows) {
      for (u32 i = 0; i < count; ++i) put_block(four, i, tile, rows, row + i);
      continue;
    }
    for (u32 c = 0; c < 8; ++c) __builtin_memcpy(tile + 4 * (c * rows + row), four.chunks[c], 16);
    u8* numbers = tile + 32 * rows + 4 * row;
    __builtin_memcpy(numbers, four.scales, 16);
    __builtin_memcpy(numbers + 4 * rows, four.scale_sums, 16);
    __builtin_memcpy(numbers + 8 * rows, four.sums, 16);
  }
}

// y[i] = fma(x[i], cos, x[partner] * +-sin), vectors of 16 while they last.
static void rope(float* head, const RopeParams& rope) {
  const float* cosine = rope.cosine;
  const float* sine = rope.sine;
  const u32 pairs = rope.pairs;
  u32 i = 0;
  if (rope.adjacent != 0) {
    for (; i + 16 <= 2 * pairs; i += 16) {
      const F32x16 x = load_f32(head + i);
      store_f32(head + i, fma(x, load_f32(cosine + i), mul(swap_neighbours(x), load_f32(sine + i))));
    }
    for (; i < 2 * pairs; i += 2) {
      const float x = head[i], y = head[i + 1];
      head[i] = __builtin_fmaf(x, cosine[i], y * sine[i]);
      head[i + 1] = __builtin_fmaf(y, cosine[i + 1], x * sine[i + 1]);
    }
    return;
  }
  for (; i + 16 <= pairs; i += 16) {
    const F32x16 x = load_f32(head + i), y = load_f32(head + pairs + i);
    store_f32(head + i, fma(x, load_f32(cosine + i), mul(y, load_f32(sine + i))));
    store_f32(head + pairs + i, fma(y, load_f32(cosine + pairs + i), mul(x, load_f32(sine + pairs + i))));
  }
  for (; i < pairs; ++i) {
    const float x = head[i], y = head[pairs + i];
    head[i] = __builtin_fmaf(x, cosine[i], y * sine[i]);
    head[pairs + i] = __builtin_fmaf(y, cosine[pairs + i], x * sine[pairs + i]);
  }
}

// The results of a product kernel [rows][16] to where they belong.
static void place_rows(const float* product, const float* bias, u32 rows, float* out, u32 stride) {
  for (u32 r = 0; r < rows; ++r) {
    const F32x16 y = load_f32(product + 16 * r);
    store_f32(out + static_cast<size_t>(r) * stride, bias == nullptr ? y : add(y, load_f32(bias)));
  }
}
static void add_weighted_rows(const float* product, u32 rows, const float* weights, const u32* targets,
                              float* out, u32 stride) {
  for (u32 r = 0; r < rows; ++r) {
    float* x = out + static_cast<size_t>(targets[r]) * stride;
    store_f32(x, fma(all_f32(weights[r]), load_f32(product + 16 * r), load_f32(x)));
  }
}

static void scale(const float* x, u32 count, float factor, float* out) {
  for (u32 i = 0; i < count; ++i) out[i] = x[i] * factor;
}

static void exp2_values(const float* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, exp2_of(load_f32(x + i)));
}
static void tanh_values(const float* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, tanh_of(load_f32(x + i)));
}
static void erf_values(const float* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, erf_of(load_f32(x + i)));
}
static void f16_to_f32_values(const u16* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, load_f16(x + i));
}
static void f32_to_f16_values(const float* x, u32 count, u16* out) {
  for (u32 i = 0; i < count; i += 16) store_f16(out + i, load_f32(x + i));
}
