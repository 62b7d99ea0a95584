// SPDX-License-Identifier: Apache-2.0
// Attention over q8 state, with integer dot products; attention.inl has the same over f16. Per element,
// whatever the number of queries:
//   score[t]  a product of the rounded query with key t (product_quantized.inl): for each group of 32
//             dimensions in order, or of 16, acc = fma(2^e * d, I, acc); then the softcap
//   w[t]      as over f16
//   c[t]      = w[t] * 2^(e + 32), e of value t in a group: what it contributes, never subnormal
//   out[dim]  = 2^(s - 32) * sum of round(c[t] / 2^s) * byte[t][dim], integers; s is the least with
//             max c < 16383.5 * 2^s
// A token that a query doesn't see has the weight 0, and its bytes are multiplied by it.

// 2^(kMore + e) of 16 tokens.
template <int kMore>
LOCI_LANES F32x16 powers(const u8* scales) {
  return from_bits(shift_left_23(kMore == 0 ? load_u8(scales) : add(load_u8(scales), all_i32(kMore))));
}

template <int kRows, bool kHalves>
static void q8_scores(const AttentionPartial& a, u32 first_block, u32 blocks) {
  const u32 steps = (a.head_dim + 31) / 32;
  for (u32 block = first_block; block < blocks; ++block) {
    const HeadState& head = a.blocks[block];
    if constexpr (kRows < kAttentionRows) {  // as attention_scores()
      const u8* next_keys = a.blocks[block + 1 < blocks ? block + 1 : block].keys;
      for (u32 line = 0; line < a.head_dim * kTokensPerBlock; line += 64) {
        __builtin_prefetch(next_keys + line, 0, 2);
        __builtin_prefetch(head.values + line, 0, 2);
      }
    }
    for (u32 half = 0; half < 2; ++half) {
      const u8* keys = head.keys + half * 16 * a.head_dim;
      const u8* scales = head.key_scales + half * 16;
      const u8* tile = a.query_tile;
      F32x16 acc[kRows];
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) acc[r] = zero_f32();
      for (u32 step = 0; step < steps; ++step, keys += BytePlanes::kBytes, tile += kTileBlockBytes * kRows) {
        const TileScales x = TileScales::of(tile, kRows);
        I32x16 dot[kRows];
        if constexpr (kHalves) {
          dot_block<BytePlanes, kRows, 0, 4>(keys, tile, x.sums, dot);
          add_dots(dot, powers<0>(scales), x, acc);
          if (32 * step + 16 >= a.head_dim) break;
          dot_block<BytePlanes, kRows, 4, 4>(keys, tile, x.sums, dot);
          add_dots(dot, powers<0>(scales + kTokensPerBlock), x, acc);
          scales += 2 * kTokensPerBlock;
        } else {
          dot_block<BytePlanes, kRows, 0, 8>(keys, tile, x.sums, dot);
          add_dots(dot, powers<0>(scales), x, acc);
          scales += kTokensPerBlock;
        }
      }
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        store_f32(a.scores + r * kAttentionStride + kTokensPerBlock * block + 16 * half, acc[r]);
      }
    }
  }
}

constexpr u32 kWeightBytes = 2 * kPartialTokens;  // of a row's rounded weights

// Tokens [begin, end), multiples of 16, of which the query sees some.
struct TokenRange {
  u32 begin, end;
};

// Rounds a query's weights for one group of dimensions; `powers` are 2^(e + 32) by token. Returns 2^(s - 32).
static float round_weights(const AttentionPartial& a, u32 row, const float* powers, TokenRange range,
                           u8* out) {
  const float* weights = a.scores + row * kAttentionStride;
  const u32 first = a.hidden[row] / 16 * 16;
  const u32 last = a.hidden[row] == a.visible[row] ? first : (a.visible[row] + 15) / 16 * 16;
  F32x16 largest = zero_f32();
  for (u32 t = first; t < last; t += 16)
    largest = max(mul(load_f32(weights + t), load_f32(powers + t)), largest);
  i32 exponent = static_cast<i32>((bits_from_float(max_f32(largest)) + 0x400) >> 23) - 13;
  if (exponent < 32) exponent = 32;
  const F32x16 inverse = all_f32(float_from_bits(static_cast<u32>(254 - exponent) << 23));
  const F32x16 magic = all_f32(8388608.0f);  // the integer is the sum's low bits
  for (u32 t = range.begin; t < range.end; t += 16) {
    const bool seen = t >= first && t < last;
    const F32x16 c = seen ? mul(load_f32(weights + t), load_f32(powers + t)) : zero_f32();
    store_weights(out + 2 * t, bits_of(fma(c, inverse, magic)));
  }
  return float_from_bits(static_cast<u32>(exponent - 32) << 23);
}

// kVectors vectors of dimensions from `dim` on, of rows whose weights and factors are given.
template <int kRows, int kVectors>
static void q8_values(const AttentionPartial& a, u32 row, u32 dim, TokenRange range, const u8* weights,
                      const float* factors) {
  ValueSum sum[kRows][kVectors];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = zero_value_sum();
  }
  for (u32 t = range.begin; t < range.end; t += 16) {
    const u8* values = a.blocks[t / kTokensPerBlock].values + t % kTokensPerBlock * a.head_dim + 4 * dim;
    for (u32 quad = 0; quad < 4; ++quad, values += 4 * a.head_dim) {
      ValueBytes x[kVectors];
      LOCI_UNROLL for (int v = 0; v < kVectors; ++v) x[v] = load_values(values + 64 * v);
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
          add_weighted(sum[r][v], x[v], weights + r * kWeightBytes + 2 * t, quad);
        }
      }
    }
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
      store_f32(a.out + (row + r) * kAttentionStride + dim + 16 * v,
                mul(to_f32(value_total(sum[r][v])), all_f32(factors[r])));
    }
  }
}

// The rows from `row` on, as many at once as sums fit into registers.
template <int kRows, bool kHalves>
static void q8_group_values(const AttentionPartial& a, u32 row, u32 dim, TokenRange range, const u8* weights,
                            const float* factors) {
  if constexpr (kRows > kValueSums) {
    q8_group_values<kValueSums, kHalves>(a, row, dim, range, weights, factors);
    q8_group_values<kRows - kValueSums, kHalves>(a, row + kValueSums, dim, range,
                                                 weights + kValueSums * kWeightBytes, factors + kValueSums);
  } else if constexpr (kHalves) {
    q8_values<kRows, 1>(a, row, dim, range, weights, factors);
  } else if constexpr (2 * kRows <= kValueSums) {
    q8_values<kRows, 2>(a, row, dim, range, weights, factors);
  } else {
    q8_values<kRows, 1>(a, row, dim, range, weights, factors);
    q8_values<kRows, 1>(a, row, dim + 16, range, weights, factors);
  }
}

template <int kRows, bool kHalves>
static void q8_rows(const AttentionPartial& a) {
  constexpr u32 kGroup = kHalves ? 16 : 32;
  const u32 first_block = a.hidden[0] / kTokensPerBlock;
  const u32 last = a.visible[kRows - 1];
  q8_scores<kRows, kHalves>(a, first_block, (last + kTokensPerBlock - 1) / kTokensPerBlock);
  for (u32 r = 0; r < kRows; ++r) attention_weights(a, r);
  const TokenRange range = {a.hidden[0] / 16 * 16, (last + 15) / 16 * 16};
  // What nobody has written may be no scale: it becomes a number, which is multiplied by zero.
  const F32x16 limit = all_f32(0x1p95f);
  alignas(64) float scales[kPartialTokens], factors[kRows];
  alignas(64) u8 weights[kRows * kWeightBytes];
  for (u32 dim = 0; dim < a.head_dim; dim += kGroup) {
    for (u32 t = range.begin; t < range.end; t += 16) {
      const u8* group = a.blocks[t / kTokensPerBlock].value_scales + dim / kGroup * kTokensPerBlock;
      store_f32(scales + t, min(powers<32>(group + t % kTokensPerBlock), limit));
    }
    for (u32 r = 0; r < kRows; ++r) {
      factors[r] = round_weights(a, r, scales, range, weights + r * kWeightBytes);
    }
    q8_group_values<kRows, kHalves>(a, 0, dim, range, weights, factors);
  }
}

template <int kRows = kAttentionRows>
static void attention_partial_q8(const AttentionPartial& a) {
  if (a.rows == kRows) {
    if (a.head_dim % 32 == 0) {
      q8_rows<kRows, false>(a);
    } else {
      q8_rows<kRows, true>(a);
    }
  } else if constexpr (kRows > 1) {
    attention_partial_q8<kRows - 1>(a);
  }
}
