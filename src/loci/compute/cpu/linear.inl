// Products with packed weights. Included by each kernels_*.cc after simd.inl.
//
// A packed matrix is a sequence of groups of 16 outputs; a group is a sequence of records, one for each
// 32 columns; a record holds what 16 vector lanes need: four columns' bytes a lane, then the lanes'
// scales. Per output and record the integer dot product is exact, then folded into the float sum with one
// fused multiply-add (two for Q4_1), in the order of the records: so an output's bits depend neither on
// how many rows are computed together nor on the vector's width.

struct FormatQ4 {  // 4 x 64 bytes of nibbles: low ones are columns 0..15, high ones 16..31
  static constexpr bool kHalves = false;
  U8x64 packed[4];
  void read(const std::uint8_t* r) {
    for (int g = 0; g < 4; ++g) packed[g] = load_bytes(r + 64 * g);
  }
  I32x16 dot(const std::int32_t* x, int) const {
    I32x16 low = izero(), high = izero();
    for (int g = 0; g < 4; ++g) {
      low = dot_small(low, low_nibbles(packed[g]), x[g]);
      high = dot_small(high, high_nibbles(packed[g]), x[4 + g]);
    }
    return iadd(low, high);
  }
};

struct FormatQ4_0 : FormatQ4 {
  static constexpr int kBytes = 256 + 32;
  F32x16 d;
  void scales(const std::uint8_t* r) { d = load_f16(reinterpret_cast<const std::uint16_t*>(r + 256)); }
  F32x16 fold(F32x16 acc, I32x16 low, I32x16, float dx, const std::int32_t* s) const {
    const I32x16 sum = isub(low, ibroadcast(8 * (s[0] + s[1])));
    return fma(mul(d, broadcast(dx)), to_float(sum), acc);
  }
};

struct FormatQ4_1 : FormatQ4 {
  static constexpr int kBytes = 256 + 64;
  F32x16 d, m;
  void scales(const std::uint8_t* r) {
    d = load_f16(reinterpret_cast<const std::uint16_t*>(r + 256));
    m = load_f16(reinterpret_cast<const std::uint16_t*>(r + 288));
  }
  F32x16 fold(F32x16 acc, I32x16 low, I32x16, float dx, const std::int32_t* s) const {
    acc = fma(mul(d, broadcast(dx)), to_float(low), acc);
    return fma(m, broadcast(dx * static_cast<float>(s[0] + s[1])), acc);
  }
};

struct FormatBytes {  // 8 x 64 bytes, unsigned by an offset
  U8x64 packed[8];
  void read(const std::uint8_t* r) {
    for (int g = 0; g < 8; ++g) packed[g] = load_bytes(r + 64 * g);
  }
};

struct FormatQ8_0 : FormatBytes {  // offset 128
  static constexpr int kBytes = 512 + 32;
  static constexpr bool kHalves = false;
  F32x16 d;
  void scales(const std::uint8_t* r) { d = load_f16(reinterpret_cast<const std::uint16_t*>(r + 512)); }
  I32x16 dot(const std::int32_t* x, int) const {
    I32x16 a = izero(), b = izero();
    for (int g = 0; g < 4; ++g) {
      a = dot_full(a, packed[g], x[g]);
      b = dot_full(b, packed[4 + g], x[4 + g]);
    }
    return iadd(a, b);
  }
  F32x16 fold(F32x16 acc, I32x16 low, I32x16, float dx, const std::int32_t* s) const {
    const I32x16 sum = isub(low, ibroadcast(128 * (s[0] + s[1])));
    return fma(mul(d, broadcast(dx)), to_float(sum), acc);
  }
};

struct FormatQ6_K : FormatBytes {  // offset 32; each half block of 16 columns has its own int8 scale
  static constexpr int kBytes = 512 + 32 + 32;
  static constexpr bool kHalves = true;
  F32x16 d;
  I32x16 scale[2];
  void scales(const std::uint8_t* r) {
    d = load_f16(reinterpret_cast<const std::uint16_t*>(r + 512));
    scale[0] = load_i8(reinterpret_cast<const std::int8_t*>(r + 544));
    scale[1] = load_i8(reinterpret_cast<const std::int8_t*>(r + 560));
  }
  I32x16 dot(const std::int32_t* x, int half) const {
    I32x16 a = izero();
    for (int g = 4 * half; g < 4 * half + 4; ++g) a = dot_small(a, packed[g], x[g]);
    return a;
  }
  F32x16 fold(F32x16 acc, I32x16 low, I32x16 high, float dx, const std::int32_t* s) const {
    const I32x16 a = imul(scale[0], isub(low, ibroadcast(32 * s[0])));
    const I32x16 b = imul(scale[1], isub(high, ibroadcast(32 * s[1])));
    return fma(mul(d, broadcast(dx)), to_float(iadd(a, b)), acc);
  }
};

inline void write_outputs(const LinearArgs& args, std::uint32_t row, std::uint32_t group, F32x16 value) {
  float* out = args.out + row * args.out_stride + group * kLanes;
  if ((group + 1) * kLanes <= args.outputs) {
    store(out, args.accumulate ? add(load(out), value) : value);
    return;
  }
  float lanes_of_value[kLanes];
  store(lanes_of_value, value);
  for (std::uint32_t i = 0; group * kLanes + i < args.outputs; ++i) {
    out[i] = args.accumulate ? out[i] + lanes_of_value[i] : lanes_of_value[i];
  }
}

template <class Format, int kRows>
void quantised_tile(const LinearArgs& args, std::uint32_t group, std::uint32_t row) {
  const std::uint8_t* record = args.weights + std::uint64_t{group} * args.blocks * Format::kBytes;
  const std::uint64_t columns = std::uint64_t{args.blocks} * kQuantBlock;
  const std::int8_t* x = args.quantised.values + row * columns;
  const float* scales = args.quantised.scales + std::uint64_t{row} * args.blocks;
  const std::int32_t* sums = args.quantised.sums + std::uint64_t{row} * args.blocks * 2;
  F32x16 acc[kRows];
  for (int m = 0; m < kRows; ++m) acc[m] = zero();
  for (std::uint32_t b = 0; b < args.blocks; ++b, record += Format::kBytes) {
    Format f;
    f.read(record);
    f.scales(record);
    if (kRows == 1) __builtin_prefetch(record + 8 * Format::kBytes);
    for (int m = 0; m < kRows; ++m) {
      std::int32_t bytes[8];
      __builtin_memcpy(bytes, x + m * columns + b * kQuantBlock, 32);
      const I32x16 low = f.dot(bytes, 0);
      const I32x16 high = Format::kHalves ? f.dot(bytes, 1) : low;
      acc[m] = f.fold(acc[m], low, high, scales[m * args.blocks + b], sums + 2 * (m * args.blocks + b));
    }
  }
  for (int m = 0; m < kRows; ++m) write_outputs(args, row + m, group, acc[m]);
}

template <class Format>
void quantised_linear(const LinearArgs& args) {
  for (std::uint32_t group = args.group_begin; group < args.group_end; ++group) {
    std::uint32_t row = 0;
    for (; row + kTileRows <= args.rows; row += kTileRows) quantised_tile<Format, kTileRows>(args, group, row);
    for (; row + 2 <= args.rows; row += 2) quantised_tile<Format, 2>(args, group, row);
    for (; row < args.rows; ++row) quantised_tile<Format, 1>(args, group, row);
  }
}

struct FormatF32 {
  static constexpr int kElement = 4;
  static F32x16 read(const std::uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct FormatF16 {
  static constexpr int kElement = 2;
  static F32x16 read(const std::uint8_t* p) { return load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct FormatBF16 {
  static constexpr int kElement = 2;
  static F32x16 read(const std::uint8_t* p) { return load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};

// Float weights: a record is [32 columns][16 lanes]. Each record's 32 products are summed from zero in the
// order of the columns, then added to the sum of the records before.
template <class Format, int kRows>
void float_tile(const LinearArgs& args, std::uint32_t group, std::uint32_t row) {
  constexpr int kBytes = 32 * 16 * Format::kElement;
  const std::uint8_t* record = args.weights + std::uint64_t{group} * args.blocks * kBytes;
  const std::uint64_t columns = std::uint64_t{args.blocks} * kQuantBlock;
  const float* x = args.floats + row * columns;
  F32x16 acc[kRows];
  for (int m = 0; m < kRows; ++m) acc[m] = zero();
  for (std::uint32_t b = 0; b < args.blocks; ++b, record += kBytes) {
    F32x16 part[kRows];
    for (int m = 0; m < kRows; ++m) part[m] = zero();
    for (int k = 0; k < 32; ++k) {
      const F32x16 w = Format::read(record + k * 16 * Format::kElement);
      for (int m = 0; m < kRows; ++m) part[m] = fma(w, broadcast(x[m * columns + b * 32 + k]), part[m]);
    }
    for (int m = 0; m < kRows; ++m) acc[m] = add(acc[m], part[m]);
  }
  for (int m = 0; m < kRows; ++m) write_outputs(args, row + m, group, acc[m]);
}

template <class Format>
void float_linear(const LinearArgs& args) {
  for (std::uint32_t group = args.group_begin; group < args.group_end; ++group) {
    std::uint32_t row = 0;
    for (; row + kTileRows <= args.rows; row += kTileRows) float_tile<Format, kTileRows>(args, group, row);
    for (; row < args.rows; ++row) float_tile<Format, 1>(args, group, row);
  }
}
