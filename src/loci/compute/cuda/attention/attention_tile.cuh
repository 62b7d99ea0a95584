// SPDX-License-Identifier: Apache-2.0
// Parts of attention's kernels: reading a step's keys and values (64 positions: two blocks) into shared
// memory, the products of a step by fragments, online softmax, and what becomes of the results. Fragments are
// mma's (simt.h): a lane holds columns 8j + 2t, 8j + 2t + 1 of rows g and g + 8, where g = lane / 4, t = lane
// % 4.
//
// Everything that makes a row's bits is here, once, for decode and prompt tiles: scores are sums over
// dimensions in mma's steps of 16; a step's maximum is exact; each lane adds its 16 probabilities of a row by
// ascending key, and the four lanes' sums are added at a split's end; values are summed over keys in steps
// of 16. Whatever is masked adds exactly nothing: the maximum stays, the factor is 1, probabilities are 0,
// and values that no row of the task sees are zeros in shared memory.
#pragma once

#include "loci/compute/cuda/attention/attention.h"
#include "loci/compute/cuda/attention/attention_layout.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

struct AttentionParams {
  AttentionArguments a;
  std::uint32_t ratio = 0;      // heads / kv_heads
  std::uint32_t warp_rows = 0;  // a warp's pairs of a prompt tile are of at most one row more than this
  std::uint32_t stages = 0;     // steps' keys and values in shared memory, 1 to 4
  float multiplier = 0;         // of scores, to base 2
  float inner = 0;              // under a softcap: of q·k before tanh
};

LOCI_DEVICE float lowest() { return __uint_as_float(0xff800000u); }  // minus infinity

// What all threads of a block know of its task.
struct TaskView {
  AttentionTask task;
  AttentionRun run;

  LOCI_DEVICE TaskView(const AttentionParams& p, const AttentionTask& its_task)
      : task(its_task), run(p.a.runs[task.run]) {}
  LOCI_DEVICE TaskView(const AttentionTask& its_task, const AttentionRun& its_run)
      : task(its_task), run(its_run) {}
  // Of a pair of the task; beyond its last one: the last one's.
  LOCI_DEVICE std::uint32_t position(const AttentionParams& p, std::uint32_t pair) const {
    return run.position + (task.first_pair + min(pair, task.pairs - 1)) / p.ratio;
  }
  LOCI_DEVICE static std::uint32_t first_visible(const AttentionParams& p, std::uint32_t position) {
    return p.a.window == 0 || position < p.a.window ? 0 : position - p.a.window + 1;
  }
  LOCI_DEVICE std::uint32_t head(const AttentionParams& p, std::uint32_t pair) const {
    return task.kv_head * p.ratio + (task.first_pair + pair) % p.ratio;
  }
  // Elements, in `queries` and `output`.
  LOCI_DEVICE std::size_t at(const AttentionParams& p, std::uint32_t pair) const {
    const std::size_t row = run.row + (task.first_pair + pair) / p.ratio;
    return (row * p.a.heads + head(p, pair)) * p.a.state.head_dim;
  }
  LOCI_DEVICE bool whole() const { return (task.flags & AttentionTask::kWhole) != 0; }
  // Deterministic mode: a split ends before `position`, and another one of the task follows.
  LOCI_DEVICE bool split_ends(const AttentionParams& p, std::uint32_t position) const {
    return p.a.split_keys != 0 && position % p.a.split_keys == 0 && position < task.key_end;
  }
  // Which of the task's splits the position is in.
  LOCI_DEVICE std::uint32_t split(const AttentionParams& p, std::uint32_t position) const {
    return p.a.split_keys == 0 ? 0 : position / p.a.split_keys - task.key_begin / p.a.split_keys;
  }
  // Of the partial results: the first row of a split's.
  LOCI_DEVICE std::size_t partial_row(std::uint32_t split) const {
    return std::size_t{task.partial + split * groups()} * kAttentionDecodePairs;
  }
  LOCI_DEVICE std::uint32_t groups() const {
    return (task.pairs + kAttentionDecodePairs - 1) / kAttentionDecodePairs;
  }
  LOCI_DEVICE std::uint32_t first_step() const { return task.key_begin / kAttentionTileKeys; }
  LOCI_DEVICE std::uint32_t end_step() const {
    return (task.key_end + kAttentionTileKeys - 1) / kAttentionTileKeys;
  }
};

// Steps of one key/value head's context on their way to shared memory: a ring of stages, each a step's keys
// and then its values. Positions that the task does not see become zeros and are not read.
template <int kHead>
class ContextReader {
 public:
  using Layout = RowLayout<kHead>;
  static constexpr std::uint32_t kKeyBytes = Layout::bytes(kAttentionTileKeys);

  LOCI_DEVICE ContextReader(const AttentionParams& p, const TaskView& view, std::byte* ring)
      : p_(p),
        ring_(ring),
        table_(view.run.table),
        head_at_(static_cast<std::uint32_t>(view.task.kv_head * p.a.state.head_bytes())),
        begin_(max(view.task.key_begin, TaskView::first_visible(p, view.position(p, 0)))),
        end_(view.task.key_end) {
    find(view.first_step());
  }

  // Fills all stages but one, from the task's first step on.
  LOCI_DEVICE void start(std::uint32_t step) {
    for (std::uint32_t i = 0; i + 1 < p_.stages; ++i) issue(step + i, i);
  }
  // Waits for the step (its keys; values follow after kKeyBytes), and lets the step after those in flight
  // begin where the last one was: all warps are done with it. A barrier. Steps come in order, each once.
  LOCI_DEVICE const std::byte* next(std::uint32_t step) {
    const std::uint32_t stage = stage_;
    stage_ = stage + 1 == p_.stages ? 0 : stage + 1;
    if (p_.stages == 1) {
      __syncthreads();
      issue(step, 0);
      copy_async_wait<0>();
      __syncthreads();
    } else {
      if (p_.stages == 2) {
        copy_async_wait<0>();
      } else if (p_.stages == 3) {
        copy_async_wait<1>();
      } else {
        copy_async_wait<2>();
      }
      __syncthreads();
      issue(step + p_.stages - 1, stage == 0 ? p_.stages - 1 : stage - 1);
    }
    return ring_ + stage * (2 * kKeyBytes);
  }

 private:
  static constexpr int kPieces = kAttentionTileKeys * Layout::kChunks / kAttentionThreads;  // a thread's
  // Unrolled where a step is the first or the last one: so that no kernel's registers spill.
  static constexpr int kPiecesAtEdges = Layout::kPermuted ? kPieces : 1;

  // The slots of the next step that is issued, ahead of their use.
  LOCI_DEVICE void find(std::uint32_t step) {
    const std::uint32_t first = step * kAttentionTileKeys;
    const std::uint32_t* table = p_.a.tables + table_ + 2 * step;
    if (first < end_) slots_[0] = __ldg(table);
    if (first + 32 < end_) slots_[1] = __ldg(table + 1);
  }

  LOCI_DEVICE void issue(std::uint32_t step, std::uint32_t stage) {
    const std::uint32_t first = step * kAttentionTileKeys;
    if (first < end_) {
      const bool all =
          first >= begin_ && first + kAttentionTileKeys <= end_ && p_.a.state.head_dim == Layout::kChunks * 8;
      std::byte* to = ring_ + stage * (2 * kKeyBytes);
      if (all) {
        copy<kPieces>(to, Layout::kChunks, [](std::uint32_t, std::uint32_t) { return true; });
      } else {
        const std::uint32_t chunks = p_.a.state.head_dim / 8, begin = begin_, end = end_;
        copy<kPiecesAtEdges>(to, chunks, [=](std::uint32_t key, std::uint32_t chunk) {
          return first + key >= begin && first + key < end && chunk < chunks;
        });
      }
      find(step + 1);
    }
    copy_async_commit();
  }

  // The pieces that are not `valid` become zeros.
  template <int kUnrolled, class Valid>
  LOCI_DEVICE void copy(std::byte* to, std::uint32_t chunks, const Valid& valid) {
    const LayerState& state = p_.a.state;
    const std::uint64_t values_after = state.kv_heads * state.head_bytes();
    const std::byte* head = state.base + head_at_;
    const std::byte *block = head + slots_[0] * state.slot_stride,
                    *other = head + slots_[1] * state.slot_stride;
#pragma unroll kUnrolled
    for (std::uint32_t i = 0; i < kPieces; ++i) {
      const std::uint32_t piece = threadIdx.x + i * kAttentionThreads;
      const std::uint32_t key = piece / Layout::kChunks, chunk = piece % Layout::kChunks;
      const std::byte* from = (key < 32 ? block : other) + ((key % 32) * chunks + chunk) * 16;
      const std::uint32_t offset = Layout::offset(key, chunk);
      copy_async_16(to + offset, from, valid(key, chunk));
      copy_async_16(to + kKeyBytes + offset, from + values_after, valid(key, chunk));
    }
  }

  const AttentionParams& p_;
  std::byte* ring_;
  const std::uint32_t table_, head_at_;  // of the span in `tables`, of the head in a slot
  const std::uint32_t begin_, end_;      // positions that are read
  std::uint32_t stage_ = 0;              // of the next step that is waited for
  std::uint32_t slots_[2] = {0, 0};      // of the next step that is issued
};

// The task's queries to shared memory; zeros beyond its pairs. They arrive with the first step.
template <int kHead>
LOCI_DEVICE void load_queries(const AttentionParams& p, const TaskView& view, std::byte* to,
                              std::uint32_t rows) {
  using Layout = RowLayout<kHead>;
  for (std::uint32_t piece = threadIdx.x; piece < rows * Layout::kChunks; piece += kAttentionThreads) {
    const std::uint32_t pair = piece / Layout::kChunks, chunk = piece % Layout::kChunks;
    const bool valid = pair < view.task.pairs && chunk < p.a.state.head_dim / 8;
    const std::byte* from = static_cast<const std::byte*>(p.a.queries);
    if (valid) from += (view.at(p, pair) + chunk * 8) * 2;
    copy_async_16(to + Layout::offset(pair, chunk), from, valid);
  }
}

// Where a lane's rows of fragments lie in a tile of rows. `first` below is a multiple of 16, so that it does
// not change how a row's chunks are permuted.
template <int kHead>
struct FragmentRows {
  using Layout = RowLayout<kHead>;
  std::uint32_t wide;  // of four matrices 16 rows high and 16 columns wide, in the order of a's and values'
  std::uint32_t tall;  // and in that of keys, whose rows are b's columns

  // Computed anew for each step: kept across steps, each column's address would be a register.
  LOCI_DEVICE FragmentRows() {
    const std::uint32_t lane = opaque(lane_id());
    wide = Layout::offset(lane % 16, lane / 16);
    tall = Layout::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  }
  // Columns 16k .. 16k + 15 of 16 rows.
  LOCI_DEVICE static std::uint32_t at(std::uint32_t offset, std::uint32_t first, int k) {
    const std::uint32_t rows = first * Layout::kStride * 16;
    return rows + (Layout::kPermuted ? (offset ^ (k % 4 * 32)) + k / 4 * 128 : offset + k * 32);
  }
  // A fragment of 16 queries: dimensions 16k .. 16k + 15.
  LOCI_DEVICE void load_query(std::uint32_t (&a)[4], const std::byte* queries, std::uint32_t first,
                              int k) const {
    load_matrix_x4(a, queries + at(wide, first, k));
  }
  // Two fragments of 8 keys: dimensions 16k .. 16k + 15.
  LOCI_DEVICE void load_keys(std::uint32_t (&b)[4], const std::byte* keys, std::uint32_t first, int k) const {
    load_matrix_x4(b, keys + at(tall, first, k));
  }
  // Two fragments of 8 dimensions, 16d .. 16d + 15: of 16 keys.
  LOCI_DEVICE void load_values(std::uint32_t (&b)[4], const std::byte* values, std::uint32_t first,
                               int d) const {
    load_matrix_x4_transposed(b, values + at(wide, first, d));
  }
};

// d[16][16] += a[16][16] * b, the two fragments of b side by side.
template <class T>
LOCI_DEVICE void multiply_pair(float (&left)[4], float (&right)[4], const std::uint32_t (&a)[4],
                               const std::uint32_t (&b)[4]) {
  const std::uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
  mma_16x8x16<T>(left, a, first);
  mma_16x8x16<T>(right, a, second);
}

// cap * tanh(scale * q·k / cap), but for the factor, which is in the multiplier.
template <int kTiles>
LOCI_DEVICE void cap_scores(float (&s)[kTiles][4], float inner) {
  const float twice = inner * 2.885390082f;  // 2 log2(e)
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] = 1.0f - __fdividef(2.0f, exp2_fast(s[j][i] * twice) + 1.0f);
  }
}

// Scores of keys that rows g and g + 8 do not see become minus infinity. `first` is the step's first
// position; each row sees [low, high].
template <int kTiles>
LOCI_DEVICE void mask_scores(float (&s)[kTiles][4], std::uint32_t first, const std::uint32_t (&low)[2],
                             const std::uint32_t (&high)[2]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t key = first + 8 * j + 2 * (lane_id() % 4) + i % 2;
      if (key < low[i / 2] || key > high[i / 2]) s[j][i] = lowest();
    }
  }
}

// What is known of rows g and g + 8 so far.
struct SoftmaxState {
  float maximum[2];  // of the scores, not yet multiplied
  float sum[2];      // this lane's part

  LOCI_DEVICE void reset() {
    maximum[0] = maximum[1] = lowest();
    sum[0] = sum[1] = 0;
  }
  // Base 2.
  LOCI_DEVICE float base(int half, float multiplier) const {
    return maximum[half] == lowest() ? lowest() : maximum[half] * multiplier;
  }
  // Of the four lanes.
  LOCI_DEVICE float whole_sum(int half) const {
    const float two = sum[half] + __shfl_xor_sync(~0u, sum[half], 1);
    return two + __shfl_xor_sync(~0u, two, 2);
  }
};

// Scores to probabilities, and by what the sums before are to be multiplied; half 0 is row g, half 1 row g
// + 8.
LOCI_DEVICE void softmax_half(float (&s)[8][4], int half, float multiplier, SoftmaxState& state,
                              float& factor) {
  const int i = 2 * half;
  float largest = fmaxf(s[0][i], s[0][i + 1]);
#pragma unroll
  for (int j = 1; j < 8; ++j) largest = fmaxf(largest, fmaxf(s[j][i], s[j][i + 1]));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
  const float before = state.maximum[half];
  state.maximum[half] = fmaxf(before, largest);
  const float base = state.maximum[half] == lowest() ? 0.0f : state.maximum[half] * multiplier;
  factor = exp2_fast(before * multiplier - base);
  float total = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    s[j][i] = exp2_fast(fmaf(s[j][i], multiplier, -base));
    s[j][i + 1] = exp2_fast(fmaf(s[j][i + 1], multiplier, -base));
    total += s[j][i];
    total += s[j][i + 1];
  }
  state.sum[half] = fmaf(state.sum[half], factor, total);
}

// Probabilities of 16 keys, the step's from 16k on, as a fragment of 16 rows.
template <class T>
LOCI_DEVICE void pack_probabilities(std::uint32_t (&a)[4], const float (&s)[8][4], int k) {
  a[0] = pack2<T>(s[2 * k][0], s[2 * k][1]);
  a[1] = pack2<T>(s[2 * k][2], s[2 * k][3]);
  a[2] = pack2<T>(s[2 * k + 1][0], s[2 * k + 1][1]);
  a[3] = pack2<T>(s[2 * k + 1][2], s[2 * k + 1][3]);
}

// Two partial results of a row become one: value = fmaf(value, before, other's value * after).
struct Fold {
  float before, after;
  // `maximum` (base 2) and `sum` become those of both.
  LOCI_DEVICE Fold(float& maximum, float& sum, float other_maximum, float other_sum) {
    const float largest = fmaxf(maximum, other_maximum);
    const float base = largest == lowest() ? 0.0f : largest;
    before = exp2_fast(maximum - base);
    after = exp2_fast(other_maximum - base);
    sum = fmaf(sum, before, other_sum * after);
    maximum = largest;
  }
  LOCI_DEVICE float value(float mine, float other) const { return fmaf(mine, before, other * after); }
};

// How a row's unnormalised values become its output: (value * factor) * inverse.
struct Normalise {
  float factor = 1, inverse;
  LOCI_DEVICE Normalise(const AttentionParams& p, std::uint32_t head, float maximum, float sum) {
    if (p.a.sinks != nullptr) factor = Fold(maximum, sum, p.a.sinks[head] * 1.4426950409f, 1.0f).before;
    inverse = sum > 0 ? __fdividef(1.0f, sum) : 0.0f;
  }
  LOCI_DEVICE float operator()(float value) const { return value * factor * inverse; }
};

}  // namespace loci::cuda
