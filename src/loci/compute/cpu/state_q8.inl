// SPDX-License-Identifier: Apache-2.0
// State in q8 (kernel_table.h, HeadState): groups of bytes that share a power of two. A group whose largest
// magnitude is L has the least e from -32 on with L < 127.5 * 2^e, and bytes x / 2^e rounded to nearest even,
// so at most 127. Unless e is -32, some byte is 64 or more, which makes e the least for the decoded values
// too: a group encodes to itself again.

constexpr i32 kLeastExponent = 127 - 32;  // biased

LOCI_LANES float float_from_bits(u32 bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
LOCI_LANES u32 bits_from_float(float x) {
  u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
LOCI_LANES u32 q8_group(u32 head_dim) { return head_dim % 32 == 0 ? 32 : 16; }

// Up to 32 values, zeros after them, to bytes; returns e + 127.
LOCI_LANES u8 encode_group(F32x16 a, F32x16 b, u8* bytes) {
  a = finite_state(a);
  b = finite_state(b);
  const u32 largest = bits_from_float(max_f32(max(abs(a), abs(b))));
  // The exponent of the first power of two above L * 128 / 127.5, less that of 64.
  i32 exponent = static_cast<i32>((largest + 0x10000) >> 23) - 6;
  if (exponent < kLeastExponent) exponent = kLeastExponent;
  const F32x16 inverse = all_f32(float_from_bits(static_cast<u32>(254 - exponent) << 23));
  const F32x16 magic = all_f32(12582912.0f);
  const I32x16 magic_bits = all_i32(0x4b400000);
  store_low_bytes(bytes, sub(bits_of(add(mul(a, inverse), magic)), magic_bits));
  store_low_bytes(bytes + 16, sub(bits_of(add(mul(b, inverse), magic)), magic_bits));
  return static_cast<u8>(exponent);
}

// Calls store(dim, count, bytes) for each group's bytes; fills the token's scales.
template <class Store>
LOCI_LANES void encode_head(const float* x, u32 head_dim, u8* scales, const Store& store) {
  const u32 group = q8_group(head_dim);
  for (u32 dim = 0; dim < head_dim; dim += group, scales += kTokensPerBlock) {
    const u32 count = head_dim - dim < group ? head_dim - dim : group;
    F32x16 a = load_f32(x + dim), b = zero_f32();
    if (count < 16) a = first_lanes(a, static_cast<int>(count), zero_f32());
    if (group == 32) b = load_f32(x + dim + 16);
    u8 bytes[32];
    *scales = encode_group(a, b, bytes);
    store(dim, count, bytes);
  }
}

static void store_key_q8(const float* x, u32 head_dim, const HeadState& head, u32 token) {
  u8* keys = head.keys + token / 16 * 16 * head_dim + token % 16 * 4;
  encode_head(x, head_dim, head.key_scales + token, [&](u32 dim, u32 count, const u8* bytes) {
    for (u32 i = 0; i < count; i += 4) {
      u32 four;
      __builtin_memcpy(&four, bytes + i, 4);
      four ^= 0x80808080;  // 128 more
      __builtin_memcpy(keys + (dim + i) / 4 * 64, &four, 4);
    }
  });
}

static void store_value_q8(const float* x, u32 head_dim, const HeadState& head, u32 token) {
  u8* values = head.values + token / 4 * 4 * head_dim + token % 4;
  encode_head(x, head_dim, head.value_scales + token, [&](u32 dim, u32 count, const u8* bytes) {
    for (u32 i = 0; i < count; ++i) values[(dim + i) * 4] = bytes[i];
  });
}

static void turn_keys_q8(const HeadState& head, u32 head_dim, const KeyTurn& turn) {
  float x[kMaxHeadDim];
  const u32 group = q8_group(head_dim);
  for (u32 token = 0; token < kTokensPerBlock; ++token) {
    const u8* keys = head.keys + token / 16 * 16 * head_dim + token % 16 * 4;
    for (u32 dim = 0; dim < head_dim; ++dim) {
      const u32 exponent = head.key_scales[dim / group * kTokensPerBlock + token];
      x[dim] = static_cast<float>(keys[dim / 4 * 64 + dim % 4] - 128) * float_from_bits(exponent << 23);
    }
    for (u32 i = 0; i < turn.pairs; ++i) {
      float& first = x[turn.adjacent != 0 ? 2 * i : i];
      float& second = x[turn.adjacent != 0 ? 2 * i + 1 : i + turn.pairs];
      const float a = first, b = second;
      first = __builtin_fmaf(a, turn.cosine[i], b * -turn.sine[i]);
      second = __builtin_fmaf(b, turn.cosine[i], a * turn.sine[i]);
    }
    store_key_q8(x, head_dim, head, token);
  }
}
