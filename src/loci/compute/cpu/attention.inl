// Attention over one partial of the context. Included by each kernels_*.cc after simd.inl.
//
// A row's score of a token is one chain of fused multiply-adds over the head's dimensions; its weights are
// e^(score - greatest of the partial); the weighted sum of V is one chain over the partial's tokens, in
// order. Rows that share the reads of K and V (a group of query heads, neighbouring tokens of a prompt) do
// not share sums, so a row's bits don't depend on them.

// scores[r, t] for kRows rows and the 32 tokens of one block.
template <int kRows>
void score_block(const std::uint16_t* keys, const float* queries, std::uint32_t head_dim, float* scores) {
  F32x16 low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) low[r] = high[r] = zero();
  for (std::uint32_t d = 0; d < head_dim; ++d) {
    const F32x16 k0 = load_f16(keys + d * 32), k1 = load_f16(keys + d * 32 + 16);
    for (int r = 0; r < kRows; ++r) {
      const F32x16 q = broadcast(queries[r * head_dim + d]);
      low[r] = fma(q, k0, low[r]);
      high[r] = fma(q, k1, high[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(scores + r * kAttentionPartial, low[r]);
    store(scores + r * kAttentionPartial + 16, high[r]);
  }
}

// Scores become weights: e^(score - greatest), 0 beyond what the row sees.
inline void weigh_row(float* scores, std::uint32_t visible, float& greatest, float& weight) {
  static const float kIndex[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F32x16 index = load(kIndex), lowest = broadcast(-__builtin_inff());
  F32x16 top = lowest;
  for (std::uint32_t t = 0; t < visible; t += 16) {
    const F32x16 limit = broadcast(static_cast<float>(visible - t));
    top = max(top, select_less(index, limit, load(scores + t), lowest));
  }
  greatest = reduce_max(top);
  const F32x16 shift = broadcast(greatest);
  F32x16 total = zero();
  for (std::uint32_t t = 0; t < kAttentionPartial; t += 16) {
    F32x16 w = zero();
    if (t < visible) {
      const F32x16 limit = broadcast(static_cast<float>(visible - t));
      w = select_less(index, limit, exponential(sub(load(scores + t), shift)), zero());
      total = add(total, w);
    }
    store(scores + t, w);
  }
  weight = reduce_add(total);
}

// sum[r, d .. d + 16 kVectors) over the first `tokens` tokens.
template <int kRows, int kVectors>
void gather_values(const AttentionArgs& args, std::uint32_t row, std::uint32_t d, std::uint32_t tokens) {
  F32x16 acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = zero();
  }
  const float* weights = args.scratch + row * kAttentionPartial;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const std::uint16_t* value = args.values[t / 32] + (t % 32) * args.head_dim + d;
    F32x16 v[kVectors];
    for (int i = 0; i < kVectors; ++i) v[i] = load_f16(value + 16 * i);
    for (int r = 0; r < kRows; ++r) {
      const F32x16 w = broadcast(weights[r * kAttentionPartial + t]);
      for (int i = 0; i < kVectors; ++i) acc[r][i] = fma(w, v[i], acc[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) store(args.sum + (row + r) * args.head_dim + d + 16 * i, acc[r][i]);
  }
}

template <int kRows>
void attend_rows(const AttentionArgs& args, std::uint32_t row) {
  std::uint32_t tokens = 0;
  for (int r = 0; r < kRows; ++r) {
    if (args.visible[row + r] > tokens) tokens = args.visible[row + r];
  }
  float* scores = args.scratch + row * kAttentionPartial;
  for (std::uint32_t block = 0; block * 32 < tokens; ++block) {
    score_block<kRows>(args.keys[block], args.queries + row * args.head_dim, args.head_dim,
                       scores + block * 32);
  }
  for (int r = 0; r < kRows; ++r) {
    weigh_row(scores + r * kAttentionPartial, args.visible[row + r], args.greatest[row + r],
              args.weight[row + r]);
  }
  std::uint32_t d = 0;
  for (; d + 16 * kValueVectors <= args.head_dim; d += 16 * kValueVectors) {
    gather_values<kRows, kValueVectors>(args, row, d, tokens);
  }
  for (; d < args.head_dim; d += 16) gather_values<kRows, 1>(args, row, d, tokens);
}

inline void attend(const AttentionArgs& args) {
  std::uint32_t row = 0;
  for (; row + kAttendRows <= args.rows; row += kAttendRows) attend_rows<kAttendRows>(args, row);
  for (; row + 3 <= args.rows; row += 3) attend_rows<3>(args, row);
  for (; row < args.rows; ++row) attend_rows<1>(args, row);
}

inline void merge(float* greatest, float* weight, float* sum, float later_greatest, float later_weight,
                  const float* later_sum, std::uint32_t head_dim) {
  const float top = *greatest > later_greatest ? *greatest : later_greatest;
  float factors[16] = {*greatest - top, later_greatest - top};
  store(factors, exponential(load(factors)));
  const F32x16 keep = broadcast(factors[0]), take = broadcast(factors[1]);
  *weight = __builtin_fmaf(later_weight, factors[1], *weight * factors[0]);
  *greatest = top;
  for (std::uint32_t d = 0; d < head_dim; d += 16) {
    store(sum + d, fma(load(later_sum + d), take, mul(load(sum + d), keep)));
  }
}

inline void finish(const float* sum, float weight, std::uint32_t head_dim, float* out) {
  const F32x16 divisor = broadcast(weight);
  for (std::uint32_t d = 0; d < head_dim; d += 16) store(out + d, div(load(sum + d), divisor));
}
