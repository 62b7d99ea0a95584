// The kernels of one instruction set, as a table of functions: chosen once, when a backend is made. A
// kernel works on what one thread was given; none allocates, none locks. All tables give the same bits
// (docs/numerics.md). Plain C types only, as the kernels' translation units are compiled for other
// instruction sets than the rest.
#pragma once

#include <cstdint>

namespace loci {

inline constexpr std::uint32_t kLanes = 16;           // output rows that are packed together
inline constexpr std::uint32_t kQuantBlock = 32;      // values that share one activation scale
inline constexpr std::uint32_t kAttentionPartial = 256;  // context tokens of one partial
inline constexpr std::uint32_t kAttentionRows = 16;   // query rows that share one read of K and V

// How a packed matrix encodes kLanes rows of kQuantBlock columns (pack.h makes them).
enum class PackedFormat : std::uint8_t { kQ4_0, kQ4_1, kQ8_0, kQ6_K, kF16, kBF16, kF32 };
inline constexpr int kPackedFormats = 7;

// Rows of activations, quantised by blocks of 32: value = scale * int8.
struct QuantRows {
  std::int8_t* values;     // [rows, columns]
  float* scales;           // [rows, columns / 32]
  std::int32_t* sums;      // [rows, columns / 16]: of the int8 values of each half block
};

// out[m, n] (+)= sum over k of weight[n, k] * activation[m, k], for all rows m and for the packed groups
// [group_begin, group_end) of kLanes outputs n.
struct LinearArgs {
  const std::uint8_t* weights;  // packed
  std::uint32_t blocks;         // columns / 32
  std::uint32_t group_begin, group_end;
  QuantRows quantised;          // quantised formats
  const float* floats;          // float formats: [rows, columns]
  std::uint32_t rows;
  float* out;                   // [rows, out_stride]
  std::uint64_t out_stride;
  std::uint32_t outputs;        // valid outputs; lanes beyond are not written
  bool accumulate;              // adds to out (a residual) instead of writing it
};

// One kv head, one partial of at most kAttentionPartial tokens, up to kAttentionRows query rows.
struct AttentionArgs {
  const std::uint16_t* const* keys;    // [blocks]: f16 [head_dim][32 tokens]
  const std::uint16_t* const* values;  // [blocks]: f16 [32 tokens][head_dim]
  const float* queries;                // [rows, head_dim], already times the attention scale
  const std::uint32_t* visible;        // [rows]: tokens of this partial that the row sees, 1..256
  std::uint32_t rows;
  std::uint32_t head_dim;              // a multiple of 16
  float* greatest;                     // [rows]
  float* weight;                       // [rows]
  float* sum;                          // [rows, head_dim]
  float* scratch;                      // [rows, kAttentionPartial]
};

struct KernelTable {
  const char* name;
  // A quantised or a float product, by PackedFormat.
  void (*linear[kPackedFormats])(const LinearArgs& args);
  // out = x / rms(x) * weight; n a multiple of 32, `count` of them real (the rest are zero).
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::uint32_t count, std::uint32_t n,
                   float* out);
  // One row of n values (a multiple of 32) to int8.
  void (*quantise)(const float* x, std::uint32_t n, std::int8_t* values, float* scales, std::int32_t* sums);
  // out = silu(gate) * up
  void (*swiglu)(const float* gate, const float* up, std::uint32_t n, float* out);
  void (*add)(float* x, const float* y, std::uint32_t n);  // x += y
  // Rotates one head in place. Pairs are (i, i + pair_stride) from first steps of `step`.
  void (*rotate)(float* head, const float* cosines, const float* sines, std::uint32_t pairs, bool adjacent);
  void (*scale)(float* x, float factor, std::uint32_t n);
  // f16, to nearest even, what is beyond its range becomes its greatest value: state is always finite.
  void (*to_f16)(const float* x, std::uint32_t n, std::uint16_t* out);
  void (*attend)(const AttentionArgs& args);
  // Merges a later partial into an earlier one: (greatest, weight, sum) of one row.
  void (*merge)(float* greatest, float* weight, float* sum, float later_greatest, float later_weight,
                const float* later_sum, std::uint32_t head_dim);
  // out = sum / weight
  void (*finish)(const float* sum, float weight, std::uint32_t head_dim, float* out);
};

// nullptr where it was not compiled or the machine can't run it.
const KernelTable* plain_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();

}  // namespace loci
