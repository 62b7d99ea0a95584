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

// 2^e of 16 tokens.
LOCI_LANES F32x16 powers(const u8* scales) { return from_bits(shift_left_23(load_u8(scales))); }

// dot[v][r] = a group of 4 * kCount dimensions, from chunk kFirst on, of keys `keys[v]` times row r of a tile
// of kStride rows. kFetches: half a line is fetched for each chunk of a vector.
template <int kRows, int kStride, int kVectors, int kFirst, int kCount, bool kFetches>
LOCI_LANES void q8_dots(const u8* keys, u32 half_bytes, const u8* tile, const i32* sums, LineFetch& fetch,
                        I32x16 (&dot)[kVectors][kRows]) {
  if constexpr (kVectors == 1) {
    if constexpr (kFetches) fetch_lines<kCount / 2>(fetch);
    dot_block<BytePlanes, kRows, kFirst, kCount, kStride>(keys, tile, sums, dot[0]);
  } else {  // each of a query's broadcast bytes serves all vectors
    static_assert(kVectors == 1 || (kSumsHoldBias && kWideBias == 0));
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[0][r] = zero_i32();
    take_off_bias<BytePlanes::kBias, kFirst, kCount>(sums, dot[0]);
    LOCI_UNROLL for (int v = 1; v < kVectors; ++v) {
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) dot[v][r] = dot[0][r];
    }
    LOCI_UNROLL for (int chunk = kFirst; chunk < kFirst + kCount; ++chunk) {
      if constexpr (kFetches) fetch_lines<kVectors / 2>(fetch);
      Bytes64 k[kVectors];
      LOCI_UNROLL for (int v = 0; v < kVectors; ++v) k[v] = load_bytes(keys + v * half_bytes + 64 * chunk);
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        add_products_each(dot, r, k, tile + (chunk * kStride + r) * 4);
      }
    }
  }
}

// Rows [kFirstRow, kFirstRow + kRows) of a tile of kStride rows.
template <int kFirstRow, int kRows, int kStride, bool kHalves>
LOCI_LANES void q8_block_scores(const AttentionPartial& a, u32 block, const u8* next_keys, LineFetch& fetch) {
  constexpr int kVectors = kScoreVectors;
  const u32 steps = (a.head_dim + 31) / 32, half_bytes = 16 * a.head_dim;
  const HeadState& head = a.blocks[block];
  for (u32 half = 0; half < 2; half += kVectors) {
    const u8* keys = head.keys + half * half_bytes;
    const u8* scales = head.key_scales + half * 16;
    const u8* tile = a.query_tile;
    F32x16 acc[kVectors][kRows];
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) acc[v][r] = zero_f32();
    }
    for (u32 step = 0; step < steps; ++step, keys += BytePlanes::kBytes, tile += kTileBlockBytes * kStride) {
      if constexpr (kFirstRow == 0) {
        if (next_keys != nullptr) {
          for (u32 line = 0; line < 8 * kVectors; ++line) __builtin_prefetch(next_keys + 64 * line, 0, 2);
          next_keys += kVectors * BytePlanes::kBytes;
        }
        fetch_lines<kVectors>(fetch);
      }
      TileScales x = TileScales::of(tile, kStride);
      x.scale += kFirstRow;
      x.sums += kFirstRow;
      const u8* rows = tile + 4 * kFirstRow;
      I32x16 dot[kVectors][kRows];
      constexpr int kGroupChunks = kHalves ? 4 : 8;
      constexpr bool kFetches = kFirstRow == 0;
      q8_dots<kRows, kStride, kVectors, 0, kGroupChunks, kFetches>(keys, half_bytes, rows, x.sums, fetch,
                                                                   dot);
      LOCI_UNROLL for (int v = 0; v < kVectors; ++v) add_dots(dot[v], powers(scales + 16 * v), x, acc[v]);
      scales += kTokensPerBlock;
      if constexpr (kHalves) {
        if (32 * step + 16 >= a.head_dim) break;
        q8_dots<kRows, kStride, kVectors, 4, 4, kFetches>(keys, half_bytes, rows, x.sums, fetch, dot);
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) add_dots(dot[v], powers(scales + 16 * v), x, acc[v]);
        scales += kTokensPerBlock;
      }
    }
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        store_f32(a.scores + (kFirstRow + r) * kAttentionStride + kTokensPerBlock * block + 16 * (half + v),
                  acc[v][r]);
      }
    }
  }
}

template <int kRows, bool kHalves>
static void q8_scores(const AttentionPartial& a, u32 first_block, u32 blocks, LineFetch& fetch) {
  constexpr int kFirst = kRows <= kScoreRows ? kRows : (kRows + 1) / 2;
  static_assert(kFirst <= kScoreRows);
  for (u32 block = first_block; block < blocks; ++block) {
    const bool keys_too = a.fetched == 0 && block + 1 < blocks;
    const u8* next = keys_too ? a.blocks[block + 1].keys : nullptr;
    for (u32 line = 0; keys_too && line < a.head_dim; line += 64)
      __builtin_prefetch(a.blocks[block + 1].key_scales + line, 0, 2);
    q8_block_scores<0, kFirst, kRows, kHalves>(a, block, next, fetch);
    if constexpr (kFirst < kRows)
      q8_block_scores<kFirst, kRows - kFirst, kRows, kHalves>(a, block, next, fetch);
  }
}

constexpr u32 kWeightBytes = 2 * kPartialTokens;  // of a row's rounded weights
constexpr u32 kFetchRounding = 96;  // lines fetched while the weights are rounded for a group of dimensions

// The tokens [begin, end) of whole blocks of which a query sees some.
struct TokenRange {
  u32 begin, end;
};

// What is added to the bits of 16 tokens' weights, which are 2^-125 or more, to multiply them by 2^(e + 32).
// What nobody has written may be no scale, and is made one.
LOCI_LANES I32x16 exponent_steps(const u8* scales) {
  const F32x16 power = from_bits(shift_left_23(add(load_u8(scales), all_i32(32))));
  return sub(bits_of(min(max(power, all_f32(1.0f)), all_f32(0x1p42f))), bits_of(all_f32(1.0f)));
}

// Rounds a query's weights for one group of dimensions; `steps` are exponent_steps() by token. Returns
// 2^(s - 32). kLines are fetched with each 32 weights.
template <int kLines>
static float round_weights(const AttentionPartial& a, u32 row, const float* steps, TokenRange range, u8* out,
                           LineFetch& fetch) {
  const float* weights = a.scores + row * kAttentionStride;
  const u32 hidden = a.hidden[row], visible = a.visible[row];
  const auto contributions = [&](u32 t) LOCI_INLINE_LAMBDA {
    const F32x16 w = load_f32(weights + t);
    const I32x16 step = bits_of(load_f32(steps + t));
    if (t >= hidden && t + 16 <= visible) return from_bits(add(bits_of(w), step));
    // Unseen tokens' weights are zero, or no weights at all.
    if (t + 16 <= hidden || t >= visible || hidden == visible) return zero_f32();
    return mul(w, from_bits(add(step, bits_of(all_f32(1.0f)))));
  };
  F32x16 largest = zero_f32();
  for (u32 t = range.begin; t < range.end; t += 16) largest = max(contributions(t), largest);
  i32 exponent = static_cast<i32>((bits_from_float(max_f32(largest)) + 0x400) >> 23) - 13;
  if (exponent < 32) exponent = 32;
  const F32x16 inverse = all_f32(float_from_bits(static_cast<u32>(254 - exponent) << 23));
  const F32x16 magic = all_f32(8388608.0f);  // the integer is the sum's low bits
  for (u32 t = range.begin; t < range.end; t += 32) {
    fetch_lines<kLines>(fetch);
    store_weights(out + 2 * t, bits_of(fma(contributions(t), inverse, magic)),
                  bits_of(fma(contributions(t + 16), inverse, magic)));
  }
  return float_from_bits(static_cast<u32>(exponent - 32) << 23);
}

// kVectors vectors of dimensions from `dim` on, of rows whose weights and factors are given.
template <int kRows, int kVectors>
static void q8_values(const AttentionPartial& a, u32 row, u32 dim, TokenRange range, const u8* weights,
                      const float* factors, LineFetch& fetch) {
  ValueSum sum[kRows][kVectors];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = zero_value_sum();
  }
  for (u32 t = range.begin; t < range.end; t += kTokensPerBlock) {
    const u8* values = a.blocks[t / kTokensPerBlock].values + 4 * dim;
    for (u32 quad = 0; quad < kTokensPerBlock / 4; ++quad, values += 4 * a.head_dim) {
      fetch_lines<1>(fetch);
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
                            const float* factors, LineFetch& fetch) {
  constexpr int kVectors = kHalves ? 1 : 2 * kRows <= kValueSums ? 2 : kValueVectors;
  constexpr int kMost = kValueSums / kVectors;
  if constexpr (kRows > kMost) {
    constexpr int kFirst = kRows <= 2 * kMost ? (kRows + 1) / 2 : kMost;
    q8_group_values<kFirst, kHalves>(a, row, dim, range, weights, factors, fetch);
    q8_group_values<kRows - kFirst, kHalves>(a, row + kFirst, dim, range, weights + kFirst * kWeightBytes,
                                             factors + kFirst, fetch);
  } else {
    q8_values<kRows, kVectors>(a, row, dim, range, weights, factors, fetch);
    if constexpr (!kHalves && kVectors == 1)
      q8_values<kRows, 1>(a, row, dim + 16, range, weights, factors, fetch);
  }
}

template <int kRows, bool kHalves>
static void q8_rows(const AttentionPartial& a) {
  constexpr u32 kGroup = kHalves ? 16 : 32;
  const u32 first_block = a.hidden[0] / kTokensPerBlock;
  const u32 blocks = (a.visible[kRows - 1] + kTokensPerBlock - 1) / kTokensPerBlock;
  LineFetch fetch;
  plan_fetch(a, first_block, blocks, a.head_dim * kTokensPerBlock,
             (a.head_dim + kGroup - 1) / kGroup * kTokensPerBlock, fetch);
  q8_scores<kRows, kHalves>(a, first_block, blocks, fetch);
  attention_softmax<kRows>(a, fetch);
  const TokenRange range = {first_block * kTokensPerBlock, blocks * kTokensPerBlock};
  alignas(64) float steps[kPartialTokens], factors[kRows];
  alignas(64) u8 weights[kRows * kWeightBytes];
  for (u32 dim = 0; dim < a.head_dim; dim += kGroup) {
    for (u32 t = range.begin; t < range.end; t += 16) {
      const u8* group = a.blocks[t / kTokensPerBlock].value_scales + dim / kGroup * kTokensPerBlock;
      store_f32(steps + t, from_bits(exponent_steps(group + t % kTokensPerBlock)));
    }
    constexpr u32 kBlocks = kRows * kPartialTokens / kTokensPerBlock;
    constexpr int kLines = (kFetchRounding + kBlocks - 1) / kBlocks;
    for (u32 r = 0; r < kRows; ++r)
      factors[r] = round_weights<kLines>(a, r, steps, range, weights + r * kWeightBytes, fetch);
    q8_group_values<kRows, kHalves>(a, 0, dim, range, weights, factors, fetch);
  }
  fetch_rest(fetch);
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
