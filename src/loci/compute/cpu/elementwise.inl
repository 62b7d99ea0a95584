// Norms, activations, rotation and rounding: what happens between the products.

// 2^x for x in [-125, 125], to which x is clamped; relative error below 2e-7. With n = x rounded to an
// integer and f = x - n: 1 + f * P(f), then n is added to the exponent.
LOCI_LANES F32x16 exp2_of(F32x16 x) {
  const F32x16 magic = all_f32(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const F32x16 clamped = min(max(x, all_f32(-125.0f)), all_f32(125.0f));
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

// x / (1 + e^-x)
LOCI_LANES F32x16 silu(F32x16 x) {
  const F32x16 power = exp2_of(mul(x, all_f32(-1.44269504088896341f)));
  return div(x, add(all_f32(1.0f), power));
}

static void swiglu(const float* gate, const float* up, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, mul(silu(load_f32(gate + i)), load_f32(up + i)));
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

// 32 values to bytes with one scale: d = max|x| / 127, q = x * (127 / max|x|) rounded to nearest even.
// Blocks below 2^-100 become zero.
static void quantize(const float* x, u32 blocks, u8* tile, u32 rows, u32 row) {
  const F32x16 magic = all_f32(12582912.0f);
  const I32x16 magic_bits = all_i32(0x4b400000);
  for (u32 block = 0; block < blocks; ++block, x += 32, tile += kTileBlockBytes * rows) {
    const F32x16 a = load_f32(x), b = load_f32(x + 16);
    const float largest = max_f32(max(abs(a), abs(b)));
    const bool zero = largest < 0x1p-100f;
    const float scale = zero ? 0.0f : largest / 127.0f;
    const F32x16 inverse = all_f32(zero ? 0.0f : 127.0f / largest);
    const I32x16 qa = sub(bits_of(add(mul(a, inverse), magic)), magic_bits);
    const I32x16 qb = sub(bits_of(add(mul(b, inverse), magic)), magic_bits);
    u8 bytes[32];
    store_low_bytes(bytes, qa);
    store_low_bytes(bytes + 16, qb);
    if (rows < kWideTileRows) {
      for (u32 c = 0; c < 8; ++c) __builtin_memcpy(tile + (c * rows + row) * 4, bytes + 4 * c, 4);
    } else {
      __builtin_memcpy(tile + 32 * row, bytes, 32);
    }
    i32 first = 0, second = 0;
    sums_i32(qa, qb, first, second);
    float* scales = reinterpret_cast<float*>(tile + 32 * rows);
    scales[row] = scale;
    scales[rows + row] = scale * static_cast<float>(first + second);
    i32* sums = reinterpret_cast<i32*>(scales + 2 * rows);
    sums[row] = (first & 0xffff) | static_cast<i32>(static_cast<u32>(second) << 16);
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
static void add_rows(const float* product, const float* bias, u32 rows, float* out, u32 stride) {
  for (u32 r = 0; r < rows; ++r) {
    const F32x16 y = load_f32(product + 16 * r);
    float* x = out + static_cast<size_t>(r) * stride;
    store_f32(x, add(load_f32(x), bias == nullptr ? y : add(y, load_f32(bias))));
  }
}

static void scale(const float* x, u32 count, float factor, float* out) {
  for (u32 i = 0; i < count; ++i) out[i] = x[i] * factor;
}

// State is always finite: what f16 cannot hold becomes its largest value (and NaN its lowest), so that a
// sum over stored values has no NaN of its own.
LOCI_LANES void store_state(u16* out, F32x16 x) {
  store_f16(out, min(max(x, all_f32(-65504.0f)), all_f32(65504.0f)));
}

static void store_key(const float* x, u32 head_dim, u16* key) {
  u16 half[16];
  for (u32 i = 0; i < head_dim; i += 16) {
    store_state(half, load_f32(x + i));
    const u32 count = head_dim - i < 16 ? head_dim - i : 16;
    for (u32 j = 0; j < count; ++j) key[(i + j) * kTokensPerBlock] = half[j];
  }
}

static void store_value(const float* x, u32 head_dim, u16* value) {
  u16 half[16];
  for (u32 i = 0; i < head_dim; i += 16) {
    store_state(half, load_f32(x + i));
    __builtin_memcpy(value + i, half, head_dim - i < 16 ? (head_dim - i) * 2 : 32);
  }
}

static void exp2_values(const float* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, exp2_of(load_f32(x + i)));
}
static void f16_to_f32_values(const u16* x, u32 count, float* out) {
  for (u32 i = 0; i < count; i += 16) store_f32(out + i, load_f16(x + i));
}
static void f32_to_f16_values(const float* x, u32 count, u16* out) {
  for (u32 i = 0; i < count; i += 16) store_f16(out + i, load_f32(x + i));
}
