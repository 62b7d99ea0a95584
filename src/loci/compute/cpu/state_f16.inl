// SPDX-License-Identifier: Apache-2.0
// State in f16 (kernel_table.h, HeadState): how a token is stored and how stored keys are turned.

// State is always finite: what f16 cannot hold becomes its largest value (and NaN its lowest), so that a
// sum over stored values has no NaN of its own.
LOCI_LANES F32x16 finite_state(F32x16 x) { return min(max(x, all_f32(-65504.0f)), all_f32(65504.0f)); }

LOCI_LANES u16* f16_of(u8* bytes) { return reinterpret_cast<u16*>(bytes); }

static void turn_pair(u16* first, u16* second, float cosine, float sine) {
  const F32x16 cosines = all_f32(cosine), sines = all_f32(sine), minus = all_f32(-sine);
  LOCI_UNROLL for (u32 i = 0; i < kTokensPerBlock; i += 16) {
    const F32x16 a = load_f16(first + i), b = load_f16(second + i);
    store_f16(first + i, finite_state(fma(a, cosines, mul(b, minus))));
    store_f16(second + i, finite_state(fma(b, cosines, mul(a, sines))));
  }
}

static void turn_keys(const HeadState& head, u32, const KeyTurn& turn) {
  u16* keys = f16_of(head.keys);
  for (u32 i = 0; i < turn.pairs; ++i) {
    const u32 first = turn.adjacent != 0 ? 2 * i : i;
    const u32 second = turn.adjacent != 0 ? 2 * i + 1 : i + turn.pairs;
    turn_pair(keys + first * kTokensPerBlock, keys + second * kTokensPerBlock, turn.cosine[i], turn.sine[i]);
  }
}

static void store_key(const float* x, u32 head_dim, const HeadState& head, u32 token) {
  u16* key = f16_of(head.keys) + token;
  u16 half[16];
  for (u32 i = 0; i < head_dim; i += 16) {
    store_f16(half, finite_state(load_f32(x + i)));
    const u32 count = head_dim - i < 16 ? head_dim - i : 16;
    for (u32 j = 0; j < count; ++j) key[(i + j) * kTokensPerBlock] = half[j];
  }
}

static void store_value(const float* x, u32 head_dim, const HeadState& head, u32 token) {
  u16* value = f16_of(head.values) + token * head_dim;
  u16 half[16];
  for (u32 i = 0; i < head_dim; i += 16) {
    store_f16(half, finite_state(load_f32(x + i)));
    __builtin_memcpy(value + i, half, head_dim - i < 16 ? (head_dim - i) * 2 : 32);
  }
}
