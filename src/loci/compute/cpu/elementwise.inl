// What is done to one row at a time. Included by each kernels_*.cc after simd.inl.

inline void rms_norm(const float* x, const float* weight, float epsilon, std::uint32_t count, std::uint32_t n,
                     float* out) {
  F32x16 squares = zero();
  for (std::uint32_t i = 0; i < n; i += 16) {
    const F32x16 v = load(x + i);
    squares = fma(v, v, squares);
  }
  const float mean = reduce_add(squares) / static_cast<float>(count);
  const F32x16 factor = broadcast(1.0f / __builtin_sqrtf(mean + epsilon));
  for (std::uint32_t i = 0; i < n; i += 16) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
}

inline void quantise(const float* x, std::uint32_t n, std::int8_t* values, float* scales, std::int32_t* sums) {
  for (std::uint32_t b = 0; b < n / 32; ++b, x += 32, values += 32) {
    const F32x16 low = load(x), high = load(x + 16);
    const float greatest = reduce_max(max(absolute(low), absolute(high)));
    const F32x16 inverse = broadcast(greatest > 0.0f ? 127.0f / greatest : 0.0f);
    scales[b] = greatest / 127.0f;
    // The bound matters where 127 / greatest overflows or was rounded up.
    const F32x16 most = broadcast(127.0f), least = broadcast(-127.0f);
    store_i8(values, max(min(mul(low, inverse), most), least));
    store_i8(values + 16, max(min(mul(high, inverse), most), least));
    for (int half = 0; half < 2; ++half) {
      std::int32_t sum = 0;
      for (int i = 0; i < 16; ++i) sum += values[16 * half + i];
      sums[2 * b + half] = sum;
    }
  }
}

inline void swiglu(const float* gate, const float* up, std::uint32_t n, float* out) {
  const F32x16 one = broadcast(1.0f);
  for (std::uint32_t i = 0; i < n; i += 16) {
    const F32x16 g = load(gate + i);
    const F32x16 silu = div(g, add(one, exponential(sub(zero(), g))));
    store(out + i, mul(silu, load(up + i)));
  }
}

inline void add_rows(float* x, const float* y, std::uint32_t n) {
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) store(x + i, add(load(x + i), load(y + i)));
  for (; i < n; ++i) x[i] = x[i] + y[i];
}

inline void scale_row(float* x, float factor, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

inline void rotate(float* head, const float* cosines, const float* sines, std::uint32_t pairs, bool adjacent) {
  const std::uint32_t step = adjacent ? 2 : 1, partner = adjacent ? 1 : pairs;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    float* first = head + i * step;
    const float a = first[0], b = first[partner];
    first[0] = __builtin_fmaf(a, cosines[i], -(b * sines[i]));
    first[partner] = __builtin_fmaf(a, sines[i], b * cosines[i]);
  }
}

inline void to_f16(const float* x, std::uint32_t n, std::uint16_t* out) {
  const F32x16 most = broadcast(65504.0f), least = broadcast(-65504.0f);
  for (std::uint32_t i = 0; i < n; i += 16) store_f16(out + i, max(min(load(x + i), most), least));
}

inline const ::loci::KernelTable* table(const char* name) {
  static const ::loci::KernelTable kTable = {
      name,
      {quantised_linear<FormatQ4_0>, quantised_linear<FormatQ4_1>, quantised_linear<FormatQ8_0>,
       quantised_linear<FormatQ6_K>, float_linear<FormatF16>, float_linear<FormatBF16>,
       float_linear<FormatF32>},
      rms_norm, quantise, swiglu, add_rows, rotate, scale_row, to_f16, attend, merge, finish};
  return &kTable;
}
