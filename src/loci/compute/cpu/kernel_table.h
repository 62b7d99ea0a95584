// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set as a table of functions, and the layouts of the data that they read.
// Kernels are pure: they touch only what their arguments point to, take no lock and check nothing. Their
// callers (hidden_projector.h, cpu_pass_runner.h) have checked the shapes. All sets give the same bits
// (docs/numerics.md).
//
// No function is defined here: see simd.h for why.
#pragma once

#include <stdint.h>

namespace loci::cpu {

inline constexpr uint32_t kLanes = 16;             // outputs of a group of packed rows
inline constexpr uint32_t kMaxTileRows = 32;       // activation rows that one product kernel takes
inline constexpr uint32_t kWideTileRows = 16;      // tiles of at least this many rows are laid out row by row
inline constexpr uint32_t kMaxAttentionRows = 12;  // queries that one attention kernel takes
inline constexpr uint32_t kMaxHeadDim = 256;
inline constexpr uint32_t kPartialTokens = 256;  // positions of the context, counted from 0
inline constexpr uint32_t kTokensPerBlock = 32;
inline constexpr uint32_t kActivations = 5;  // number of values of Activation
inline constexpr uint32_t kQuantBlock = 32;  // activations that share a scale
// Bytes of one block of one activation row in a tile: 32 values, the scale, scale * sum, the sums of both
// halves.
inline constexpr uint32_t kTileBlockBytes = 44;
// Distance in floats between rows of queries and of scores. It is not a power of two, so that rows fall into
// different sets of the cache.
inline constexpr uint32_t kAttentionStride = kPartialTokens + 16;

// Packed weights: 16 output rows interleaved, "lane r" belongs to row r of the group. A quantised type
// holds its integers, made unsigned, in planes for each 32 columns (chunk c: columns 4c .. 4c + 3, a byte
// each, four bytes a lane; "bit c" of a byte belongs to chunk c of the same lane and place):
//   nibbles  4 x 64 B: chunk c in the low nibbles, chunk c + 4 in the high ones
//   bytes    8 x 64 B: chunk c
//   pairs    2 x 64 B: in vector h, bits 2f and 2f + 1 of each byte belong to chunk 4h + f
//   bit      1 x 64 B: bit c
// A step is 32 columns of
//   Q4_0 Q4_1 IQ4_NL MXFP4  nibbles            then 16 f16 scales (MXFP4: bf16); Q4_1, Q5_1: 16 f16 minima
//   Q5_0 Q5_1               nibbles, fifth bit
//   Q8_0                    bytes
// or 256 columns of
//   Q2_K pairs    Q3_K pairs, third bit    Q4_K IQ4_XS nibbles    Q5_K nibbles, fifth bit
//   Q6_K nibbles, upper pairs
// for each 32 columns; then for each 32 columns 16 i8 scales (Q3_K, Q6_K: of the first 16 columns, then 16 of
// the others; Q2_K likewise, with scales in low nibbles and minima in high ones), and for Q4_K and Q5_K 16 i8
// minima; then 16 f16 scales of the scales and, where there are minima, 16 f16 scales of these.
// Float types hold for each column 16 values; an odd number of columns is padded by a zero column.
// clang-format off
enum class PackedType : uint8_t {
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kIQ4_NL, kMXFP4,
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_XS,
  kF32, kF16, kBF16,
};
inline constexpr uint32_t kPackedTypes = 16;
// Columns and bytes of one step of a group.
inline constexpr uint32_t kPackedStepColumns[kPackedTypes] = {
    32, 32, 32, 32, 32, 32, 32, 256, 256, 256, 256, 256, 256, 2, 2, 2};
inline constexpr uint32_t kPackedStepBytes[kPackedTypes] = {
    288, 320, 352, 384, 544, 288, 288,
    8 * (128 + 32) + 64, 8 * (192 + 32) + 32, 8 * (256 + 32) + 64, 8 * (320 + 32) + 64, 8 * (384 + 32) + 32,
    8 * (256 + 16) + 32, 128, 64, 64};
// clang-format on

// out[r * 16 + lane] = row `lane` of the group times activation row r, for the tile's rows.
// A tile of R rows is, for quantised weights, for each 32 columns
//   { i8 q[8 chunks][R][4]; f32 scale[R]; f32 scale_sum[R]; { i16 first half, i16 second half } sums[R]; }
// A wide tile, of kWideTileRows rows or more, has i8 q[R][32] instead. For float weights a tile is
// f32[columns, even][R].
using ProductKernel = void (*)(const uint8_t* group, const uint8_t* tile, uint32_t steps, float* out);

// One key/value head's part of one layer of a block, 32 tokens.
//   f16   keys f16 [head_dim][32], values f16 [32][head_dim], no scales
//   q8    a group is 32 dimensions, 16 where head_dim is no multiple of 32 (the last may be 8); byte * 2^e
//         keys u8 [2 halves of the tokens][head_dim / 4][16][4], 128 more than the signed value: a half is a
//         group of packed rows, in chunks as kernel_table.h's "bytes"
//         values i8 [32 / 4][head_dim][4 tokens]
//         scales u8 [groups][32]: e + 127
// At least 128 bytes after a q8 head's keys, and 32 after its values, must be readable; their contents have
// no effect.
struct HeadState {
  uint8_t* keys = nullptr;
  uint8_t* values = nullptr;
  uint8_t* key_scales = nullptr;
  uint8_t* value_scales = nullptr;
};

// The arguments of attention over one partial of the context, for up to `attention_rows` queries that share a
// key/value head: scores, weights and weighted values.
struct AttentionPartial {
  const HeadState* blocks = nullptr;  // blocks of the partial
  uint32_t head_dim = 0;
  uint32_t rows = 0;
  const float* queries = nullptr;  // [rows][kAttentionStride], scaled
  // q8 only: the queries rounded, as a tile of `rows` rows whose last 32 columns are padded with zeros.
  const uint8_t* query_tile = nullptr;
  // [rows] A query sees the partial's tokens [hidden, visible); none if the two are equal. Both ascend.
  const uint32_t* hidden = nullptr;
  const uint32_t* visible = nullptr;
  float softcap = 0;         // scores become softcap * tanh(score); 0: unchanged
  float* scores = nullptr;   // scratch [rows][kAttentionStride]
  float* maximum = nullptr;  // [rows], of kLanes: the others have no meaning
  float* sum = nullptr;      // [rows], of kLanes; 0: nothing was visible, and `out` is zero
  float* out = nullptr;      // [rows][kAttentionStride]
  // The blocks whose keys are fetched into the cache meanwhile: those of the partial that comes next.
  const HeadState* next = nullptr;
  uint32_t next_blocks = 0;
  uint32_t fetched = 0;  // 1: this partial was the last call's `next`
  // f16 only, and from `wide_attention_rows` queries on: keys and values as float32, [keys, values][block],
  // read in place of the blocks. Or nullptr. Where `widens` is 1 the blocks are read, and what all queries
  // see is left there for the next calls; no query's `hidden` is above 0 then.
  float* wide = nullptr;
  uint32_t widens = 0;
};

// The rotation of a token's position. Element i of a head rotates with its partner p(i): i +- 1 or i +-
// pairs.
struct RopeParams {
  const float* cosine = nullptr;  // [2 * pairs], of each element
  const float* sine = nullptr;    // [2 * pairs], negated for the first of a pair
  uint32_t pairs = 0;
  uint32_t adjacent = 0;  // 1: pairs (0,1), (2,3)...; 0: (0, pairs), (1, pairs + 1)...
};

// One angle for each pair of dimensions of stored keys: pair i is (i, pairs + i), or (2i, 2i + 1) where
// `adjacent` is 1.
struct KeyTurn {
  const float* cosine = nullptr;  // [pairs]
  const float* sine = nullptr;    // [pairs]
  uint32_t pairs = 0;
  uint32_t adjacent = 0;
};

// The kernels that depend on the type to which state is rounded.
struct StateKernels {
  // Stores the key of token `token` of a block; x must be readable to a multiple of 16 values.
  void (*store_key)(const float* x, uint32_t head_dim, const HeadState& head, uint32_t token);
  void (*store_value)(const float* x, uint32_t head_dim, const HeadState& head, uint32_t token);
  // Rotates the keys of all 32 tokens, and rounds as store_key does: a' = fma(a, cosine, b * -sine), b' =
  // fma(b, cosine, a * sine).
  void (*turn_keys)(const HeadState& head, uint32_t head_dim, const KeyTurn& turn);
  void (*attention_partial)(const AttentionPartial& partial);
  // Widens a block's keys and values to float32, which lie there as in the block. nullptr: not for this type.
  void (*widen)(const HeadState& head, uint32_t head_dim, float* keys, float* values);
};

struct KernelTable {
  uint32_t tile_rows;       // most rows of a tile that is not wide, < kWideTileRows
  uint32_t wide_tile_rows;  // most rows of a wide tile; 0: there are none. From this many rows on all tiles
                            // are wide, each of more than half of it
  uint32_t attention_rows;  // most queries of an AttentionPartial, <= kMaxAttentionRows
  uint32_t wide_attention_rows;                       // fewest that may read widened state
  ProductKernel product[kPackedTypes][kMaxTileRows];  // [type][rows - 1]

  // `padded` is a multiple of 16; elements from `count` on are zero in x and weight.
  void (*rms_norm)(const float* x, const float* weight, uint32_t count, uint32_t padded, float epsilon,
                   float* out);
  // `bias` may be nullptr.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, uint32_t count, uint32_t padded,
                     float epsilon, float* out);
  // Quantises `blocks` * 32 values into row `row` of a tile of `rows` rows.
  void (*quantize)(const float* x, uint32_t blocks, uint8_t* tile, uint32_t rows, uint32_t row);
  // Quantises x[rows][32] into the block of each row of a tile at `tile`.
  void (*quantize_rows)(const float* x, uint8_t* tile, uint32_t rows);
  // By Activation (model_spec.h): out = activation(gate) * up, and out = activation(x); count is a
  // multiple of 16.
  void (*gated[kActivations])(const float* gate, const float* up, uint32_t count, float* out);
  void (*ungated[kActivations])(const float* x, uint32_t count, float* out);
  // out = cap * tanh(x / cap); count is a multiple of 16.
  void (*softcap)(const float* x, uint32_t count, float cap, float* out);
  // x += y; count is a multiple of 16.
  void (*add)(float* x, const float* y, uint32_t count);
  // Adds the bias of 16 outputs, if there is one, to a product [rows][16], and writes it to rows that lie
  // `stride` floats apart.
  void (*place_rows)(const float* product, const float* bias, uint32_t rows, float* out, uint32_t stride);
  // out[targets[r]] = fma(weights[r], product[r], out[targets[r]])
  void (*add_weighted_rows)(const float* product, uint32_t rows, const float* weights,
                            const uint32_t* targets, float* out, uint32_t stride);
  // Rotates one head in place: y[i] = fma(x[i], cosine[i], x[p(i)] * sine[i]).
  void (*rope)(float* head, const RopeParams& rope);
  void (*scale)(const float* x, uint32_t count, float factor, float* out);

  StateKernels f16, q8;  // by StateType (state_layout.h)
  // Merges `from` into `into`, which holds the partials before it, for into.rows queries.
  void (*attention_merge)(const AttentionPartial& from, const AttentionPartial& into);
  // Merges one more score, whose value vector is zero.
  void (*attention_sink)(const AttentionPartial& state, uint32_t row, float score);
  // out[head_dim] = values / sum of weights.
  void (*attention_finish)(const AttentionPartial& state, uint32_t row, float* out);

  // For tests: lane-wise functions over `count` values, a multiple of 16.
  void (*exp2)(const float* x, uint32_t count, float* out);
  void (*tanh)(const float* x, uint32_t count, float* out);
  void (*erf)(const float* x, uint32_t count, float* out);
  void (*f16_to_f32)(const uint16_t* x, uint32_t count, float* out);
  void (*f32_to_f16)(const float* x, uint32_t count, uint16_t* out);
};

const KernelTable& plain_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& amx_kernels();
const KernelTable& neon_kernels();

}  // namespace loci::cpu
