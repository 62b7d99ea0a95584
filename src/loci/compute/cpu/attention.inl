// SPDX-License-Identifier: Apache-2.0
// Attention of a few queries over one partial (256 tokens of the context, eight blocks) of f16 state. The
// queries are (token, head) pairs that share a key/value head, so each key and value is loaded and widened
// once for all of them. Per element, whatever the number of queries:
//   score[t]  = chain of fma over dimensions 0, 1, ...          (lanes are tokens), then the softcap
//   m         = max of the visible scores; w[t] = 2^(score[t] - m), zero where t is not visible
//   sum       = lane sums over vectors of 16 tokens in order, then the tree
//   out[dim]  = chain of fma(w[t], value[t][dim]) over visible t = 0, 1, ...   (lanes are dimensions)
// Tokens that a query doesn't see never enter its sums, so what their slots hold (even NaN) is without
// effect.

// Lines that are fetched into the second-level cache in the order in which attention will read them, a
// partial ahead: keys, then values of the partial that comes next (before them this partial's own values, if
// no call has fetched it). Blocks lie far apart, and the processor's own prefetcher begins anew in each. A
// few lines at a time keep the memory busy in all phases of a partial, each by the time that it takes.
struct LineFetch {
  const u8* line = nullptr;
  const u8* end = nullptr;
  u32 at = 0, count = 0;
  struct Range {
    const u8* begin;
    const u8* end;
  };
  // Of the values and scales of a partial, and of the keys, values and scales of the next.
  Range ranges[6 * kPartialTokens / kTokensPerBlock];
};

LOCI_LANES void add_range(LineFetch& fetch, const u8* bytes, u32 size) {
  if (size > 0) fetch.ranges[fetch.count++] = {bytes - reinterpret_cast<uintptr_t>(bytes) % 64, bytes + size};
}

// Begins with one line of each page. The processor stops at a line whose page it has to look for in the page
// tables, but looks for some pages at once.
LOCI_LANES void find_pages(const LineFetch& fetch) {
  constexpr uintptr_t kPage = 4096;
  for (u32 i = 0; i < fetch.count; ++i) {
    const u8 *first = fetch.ranges[i].begin, *last = fetch.ranges[i].end - 1;
    __builtin_prefetch(first, 0, 2);
    if (reinterpret_cast<uintptr_t>(first) / kPage != reinterpret_cast<uintptr_t>(last) / kPage)
      __builtin_prefetch(last, 0, 2);
  }
}

// Of a head in blocks [first_block, blocks), whose keys (or values) take `bytes`, and their scales
// `scale_bytes`.
static void plan_fetch(const AttentionPartial& a, u32 first_block, u32 blocks, u32 bytes, u32 scale_bytes,
                       LineFetch& fetch) {
  for (u32 block = first_block; block < blocks && a.fetched == 0; ++block) {
    add_range(fetch, a.blocks[block].value_scales, scale_bytes);
    add_range(fetch, a.blocks[block].values, bytes);
  }
  for (u32 block = 0; block < a.next_blocks; ++block) {
    add_range(fetch, a.next[block].key_scales, scale_bytes);
    add_range(fetch, a.next[block].keys, bytes);
  }
  for (u32 block = 0; block < a.next_blocks; ++block) {
    add_range(fetch, a.next[block].value_scales, scale_bytes);
    add_range(fetch, a.next[block].values, bytes);
  }
  find_pages(fetch);
}

constexpr u32 kFetchBetween = 48;  // lines fetched while weights are computed

template <int kLines>
LOCI_LANES void fetch_lines(LineFetch& fetch) {
  if (fetch.end - fetch.line > 64 * (kLines - 1)) {
    LOCI_UNROLL for (int i = 0; i < kLines; ++i) __builtin_prefetch(fetch.line + 64 * i, 0, 2);
    fetch.line += 64 * kLines;
    return;
  }
  for (int i = 0; i < kLines; ++i) {
    if (fetch.line >= fetch.end) {
      if (fetch.at == fetch.count) return;
      fetch.line = fetch.ranges[fetch.at].begin;
      fetch.end = fetch.ranges[fetch.at++].end;
    }
    __builtin_prefetch(fetch.line, 0, 2);
    fetch.line += 64;
  }
}

// What is left.
static void fetch_rest(LineFetch& fetch) {
  while (fetch.line < fetch.end || fetch.at < fetch.count) fetch_lines<4>(fetch);
}

// Where kernels find a partial's keys and values: in its blocks, or widened to float32.
struct Narrow {
  using Number = u16;
  static constexpr bool kWidens = false;
  LOCI_LANES const u16* keys(const AttentionPartial& a, u32 block) { return f16_of(a.blocks[block].keys); }
  LOCI_LANES const u16* values(const AttentionPartial& a, u32 block) {
    return f16_of(a.blocks[block].values);
  }
  LOCI_LANES F32x16 load(const u16* p) { return load_f16(p); }
  LOCI_LANES F32x16 load_8(const u16* p) { return load_f16_8(p); }
};
// In its blocks; it leaves them widened. The stores fit between the multiplications.
struct Widening : Narrow {
  static constexpr bool kWidens = true;
};
struct Wide {
  using Number = float;
  static constexpr bool kWidens = false;
  LOCI_LANES const float* keys(const AttentionPartial& a, u32 block) {
    return a.wide + block * kTokensPerBlock * a.head_dim;
  }
  LOCI_LANES const float* values(const AttentionPartial& a, u32 block) {
    return keys(a, kPartialTokens / kTokensPerBlock + block);
  }
  LOCI_LANES F32x16 load(const float* p) { return load_f32(p); }
  LOCI_LANES F32x16 load_8(const float* p) { return load_f32_8(p); }
};
// From this many queries on there are kernels for all three.
constexpr int kWideAttentionRows = kAttentionRows / 2 + 1;

static void widen(const HeadState& head, u32 head_dim, float* keys, float* values) {
  const u16 *key = f16_of(head.keys), *value = f16_of(head.values);
  for (u32 i = 0; i < head_dim * kTokensPerBlock; i += 16) {  // blocks have 32 tokens
    store_f32(keys + i, load_f16(key + i));
    store_f32(values + i, load_f16(value + i));
  }
}

template <int kRows, class State>
static void attention_scores(const AttentionPartial& a, u32 first_block, u32 blocks, LineFetch& fetch) {
  constexpr int kVectors = kScoreVectors;
  for (u32 block = first_block; block < blocks; ++block) {
    const bool keys_too = a.fetched == 0 && block + 1 < blocks;
    const u8* next_key = a.blocks[keys_too ? block + 1 : block].keys;
    for (int first = 0; first < 2; first += kVectors) {
      const typename State::Number* key = State::keys(a, block) + 16 * first;
      float* wide = State::kWidens ? a.wide + block * kTokensPerBlock * a.head_dim + 16 * first : nullptr;
      F32x16 acc[kRows][kVectors];
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = zero_f32();
      }
      for (u32 dim = 0; dim < a.head_dim; ++dim, key += kTokensPerBlock) {
        if (first == 0) {
          if (keys_too) __builtin_prefetch(next_key + dim * kTokensPerBlock * sizeof(u16), 0, 2);
          fetch_lines<1>(fetch);
        }
        F32x16 k[kVectors];
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) k[v] = State::load(key + 16 * v);
        if constexpr (State::kWidens) {
          LOCI_UNROLL for (int v = 0; v < kVectors; ++v) store_f32(wide + 16 * v, k[v]);
          wide += kTokensPerBlock;
        }
        LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
          const F32x16 q = all_f32(a.queries[r * kAttentionStride + dim]);
          LOCI_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(q, k[v], acc[r][v]);
        }
      }
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
          store_f32(a.scores + r * kAttentionStride + 32 * block + 16 * (first + v), acc[r][v]);
        }
      }
    }
  }
}

// Scores of one query to weights; its maximum and sum.
static void attention_weights(const AttentionPartial& a, u32 row) {
  float* scores = a.scores + row * kAttentionStride;
  const u32 hidden = a.hidden[row], visible = a.visible[row];
  if (hidden == visible) {
    a.maximum[row] = -__builtin_inff();
    a.sum[row] = 0;
    return;
  }
  const u32 first = hidden / 16 * 16;
  const F32x16 lowest = all_f32(-__builtin_inff());
  if (a.softcap != 0) {
    for (u32 i = first; i < visible; i += 16) {
      store_f32(scores + i, mul(all_f32(a.softcap), tanh_of(load_f32(scores + i))));
    }
  }
  if (hidden != first) {
    store_f32(scores + first,
              first_lanes(lowest, static_cast<int>(hidden - first), load_f32(scores + first)));
  }
  F32x16 largest = lowest;
  for (u32 i = first; i < visible; i += 16) {
    F32x16 s = load_f32(scores + i);
    if (visible - i < 16) {
      s = first_lanes(s, static_cast<int>(visible - i), lowest);
      store_f32(scores + i, s);
    }
    largest = max(largest, s);
  }
  const float maximum = max_f32(largest);
  F32x16 sum = zero_f32();
  for (u32 i = first; i < visible; i += 16) {
    F32x16 w = exp2_below_125(sub(load_f32(scores + i), all_f32(maximum)));
    if (i < hidden) w = first_lanes(zero_f32(), static_cast<int>(hidden - i), w);
    if (visible - i < 16) w = first_lanes(w, static_cast<int>(visible - i), zero_f32());
    store_f32(scores + i, w);
    sum = add(sum, w);
  }
  a.maximum[row] = maximum;
  a.sum[row] = sum_f32(sum);
}

template <int kRows>
static void attention_softmax(const AttentionPartial& a, LineFetch& fetch) {
  for (u32 r = 0; r < kRows; ++r) {
    attention_weights(a, r);
    fetch_lines<kFetchBetween / kRows>(fetch);
  }
}

// Continues the chains of row r, which lie in `out`, over tokens [begin, end).
template <class State, int kVectors, bool kHalf>
static void attention_chain(const AttentionPartial& a, u32 r, u32 dim, u32 begin, u32 end) {
  for (u32 t = begin; t < end; ++t) {
    const typename State::Number* value =
        State::values(a, t / kTokensPerBlock) + (t % kTokensPerBlock) * a.head_dim + dim;
    const F32x16 w = all_f32(a.scores[r * kAttentionStride + t]);
    for (int v = 0; v < kVectors; ++v) {
      float* out = a.out + r * kAttentionStride + dim + 16 * v;
      const F32x16 x = kHalf ? State::load_8(value + 16 * v) : State::load(value + 16 * v);
      store_f32(out, fma(w, x, load_f32(out)));
    }
  }
}

// kVectors vectors of dimensions from `dim` on; kHalf: the one vector has 8 dimensions.
template <class State, int kRows, int kVectors, bool kHalf>
static void attention_values(const AttentionPartial& a, u32 dim, LineFetch& fetch) {
  using Number = typename State::Number;
  const auto load = [](const Number* p)
                        LOCI_INLINE_LAMBDA { return kHalf ? State::load_8(p) : State::load(p); };
  F32x16 acc[kRows][kVectors];
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = zero_f32();
  }
  // The tokens that all queries see; before them come those that the later queries' windows have left.
  const u32 common = a.visible[0];
  const u32 begin = a.hidden[kRows - 1] < common ? a.hidden[kRows - 1] : common;
  if (a.hidden[0] < begin) {
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
        store_f32(a.out + r * kAttentionStride + dim + 16 * v, zero_f32());
      }
    }
    for (u32 r = 0; r < kRows; ++r) attention_chain<State, kVectors, kHalf>(a, r, dim, a.hidden[r], begin);
    LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
      LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = load_f32(a.out + r * kAttentionStride + dim + 16 * v);
      }
    }
  }
  for (u32 first = begin; first < common;) {
    const Number* value =
        State::values(a, first / kTokensPerBlock) + (first % kTokensPerBlock) * a.head_dim + dim;
    const float* weight = a.scores + first;
    float* wide = State::kWidens ? a.wide + (kPartialTokens + first) * a.head_dim + dim : nullptr;
    const u32 block_left = kTokensPerBlock - first % kTokensPerBlock;
    const u32 count = common - first < block_left ? common - first : block_left;
    first += count;
    for (u32 t = 0; t < count; ++t, value += a.head_dim, ++weight) {
      fetch_lines<(kVectors + 1) / 2>(fetch);
      F32x16 x[kVectors];
      LOCI_UNROLL for (int v = 0; v < kVectors; ++v) x[v] = load(value + 16 * v);
      if constexpr (State::kWidens) {
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
          if constexpr (kHalf) {
            store_f32_8(wide + 16 * v, x[v]);
          } else {
            store_f32(wide + 16 * v, x[v]);
          }
        }
        wide += a.head_dim;
      }
      LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
        const F32x16 w = all_f32(weight[r * kAttentionStride]);
        LOCI_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(w, x[v], acc[r][v]);
      }
    }
  }
  LOCI_UNROLL for (int r = 0; r < kRows; ++r) {
    LOCI_UNROLL for (int v = 0; v < kVectors; ++v) {
      store_f32(a.out + r * kAttentionStride + dim + 16 * v, acc[r][v]);
    }
  }
  for (u32 r = 1; r < kRows; ++r) {
    const u32 first = a.hidden[r] < common ? common : a.hidden[r];
    attention_chain<State, kVectors, kHalf>(a, r, dim, first, a.visible[r]);
  }
}

template <int kRows, class State>
static void attention_rows(const AttentionPartial& a) {
  constexpr int kVectors = kRows * 4 <= kValueAccumulators ? 4 : kRows * 2 <= kValueAccumulators ? 2 : 1;
  const u32 last = a.visible[kRows - 1];
  const u32 first_block = a.hidden[0] / kTokensPerBlock;
  const u32 blocks = (last + kTokensPerBlock - 1) / kTokensPerBlock;
  LineFetch fetch;
  plan_fetch(a, first_block, blocks, 2 * a.head_dim * kTokensPerBlock, 0, fetch);
  attention_scores<kRows, State>(a, first_block, blocks, fetch);
  attention_softmax<kRows>(a, fetch);
  u32 dim = 0;
  for (; dim + 16 * kVectors <= a.head_dim; dim += 16 * kVectors)
    attention_values<State, kRows, kVectors, false>(a, dim, fetch);
  for (; dim + 16 <= a.head_dim; dim += 16) attention_values<State, kRows, 1, false>(a, dim, fetch);
  if (dim < a.head_dim) attention_values<State, kRows, 1, true>(a, dim, fetch);
  fetch_rest(fetch);
}

template <int kRows = kAttentionRows>
static void attention_partial(const AttentionPartial& a) {
  if (a.rows == kRows) {
    if constexpr (kRows >= kWideAttentionRows) {
      if (a.wide != nullptr && a.widens != 0) return attention_rows<kRows, Widening>(a);
      if (a.wide != nullptr) return attention_rows<kRows, Wide>(a);
    }
    attention_rows<kRows, Narrow>(a);
  } else if constexpr (kRows > 1) {
    attention_partial<kRows - 1>(a);
  }
}

// With M = max(m1, m2), a = 2^(m1 - M), b = 2^(m2 - M): sum = fma(sum1, a, sum2 * b), values likewise. Lanes
// are queries, then dimensions.
static void attention_merge(const AttentionPartial& from, const AttentionPartial& into) {
  static_assert(kMaxAttentionRows <= 16);
  const F32x16 m1 = load_f32(into.maximum), m2 = load_f32(from.maximum);
  const F32x16 m = max(m1, m2);
  const F32x16 a = exp2_of(sub(m1, m)), b = exp2_of(sub(m2, m));
  const F32x16 sum = fma(load_f32(into.sum), a, mul(load_f32(from.sum), b));
  alignas(64) float maxima[16], sums[16], old_factors[16], new_factors[16];
  store_f32(maxima, m);
  store_f32(sums, sum);
  store_f32(old_factors, a);
  store_f32(new_factors, b);
  bool all = true;  // see something of this partial and of those before it
  for (u32 row = 0; row < into.rows; ++row) all = all && from.sum[row] != 0 && into.sum[row] != 0;
  // Stored as vectors, as the next call loads them: it would wait for single numbers to reach the cache.
  if (all) {
    store_f32(into.maximum, m);
    store_f32(into.sum, sum);
  }
  for (u32 row = 0; row < into.rows; ++row) {
    if (from.sum[row] == 0) continue;               // it saw nothing of this partial
    const bool first = !all && into.sum[row] == 0;  // nor of those before it
    if (!all) {
      into.maximum[row] = first ? from.maximum[row] : maxima[row];
      into.sum[row] = first ? from.sum[row] : sums[row];
    }
    const F32x16 old_factor = all_f32(old_factors[row]), new_factor = all_f32(new_factors[row]);
    for (u32 dim = 0; dim < into.head_dim; dim += 16) {
      float* x = into.out + row * kAttentionStride + dim;
      const F32x16 y = load_f32(from.out + row * kAttentionStride + dim);
      store_f32(x, first ? y : fma(load_f32(x), old_factor, mul(y, new_factor)));
    }
  }
}

// As a partial with the maximum `score`, the sum 1 and no values.
static void attention_sink(const AttentionPartial& state, u32 row, float score) {
  const F32x16 m1 = all_f32(state.maximum[row]), m2 = all_f32(score);
  const F32x16 m = max(m1, m2);
  const F32x16 a = exp2_of(sub(m1, m)), b = exp2_of(sub(m2, m));
  float lanes[16];
  store_f32(lanes, m);
  state.maximum[row] = lanes[0];
  store_f32(lanes, fma(all_f32(state.sum[row]), a, b));
  state.sum[row] = lanes[0];
  for (u32 dim = 0; dim < state.head_dim; dim += 16) {
    float* x = state.out + row * kAttentionStride + dim;
    store_f32(x, mul(load_f32(x), a));
  }
}

static void attention_finish(const AttentionPartial& state, u32 row, float* out) {
  const F32x16 inverse = div(all_f32(1.0f), all_f32(state.sum[row]));
  for (u32 dim = 0; dim < state.head_dim; dim += 16) {
    const F32x16 y = mul(load_f32(state.out + row * kAttentionStride + dim), inverse);
    if (state.head_dim - dim < 16) {
      store_f32_8(out + dim, y);
    } else {
      store_f32(out + dim, y);
    }
  }
}
