// SPDX-License-Identifier: Apache-2.0
// Attention of one layer over a long context, by type of state and number of queries that share a key/value
// head: 3 (decode, grouped queries), 12 (a prompt). "Together": 16 such tiles of a prompt read state that
// was widened for all of them; a tile's share. Blocks are scattered over memory. Times are of the thread, not
// the clock, and the best round counts, so that a busy machine disturbs less; types alternate.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

constexpr std::uint32_t kHeadDim = 64, kRounds = 15, kTiles = 16;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Blocks of one key/value head in random order, of tokens with state.
struct Context {
  StateLayout layout;
  Buffer memory;
  std::vector<HeadState> blocks;

  Context(StateType type, std::uint32_t tokens) : layout(type, 1, kHeadDim) {
    Random random(1);
    const std::uint32_t count = tokens / kTokensPerBlock;
    memory.reserve(count * layout.slice_bytes(), "a benchmark");
    for (std::uint32_t i = 0; i < count; ++i) {
      auto* slice = reinterpret_cast<std::uint8_t*>(memory.data()) + i * layout.slice_bytes();
      blocks.push_back(layout.head(slice, 0));
      for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
        std::vector<float> x = normal_values(random, kHeadDim + kLanes);
        layout.kernels(plain_kernels()).store_key(x.data(), kHeadDim, blocks.back(), t);
        layout.kernels(plain_kernels()).store_value(x.data(), kHeadDim, blocks.back(), t);
      }
    }
    for (std::size_t i = blocks.size() - 1; i > 0; --i) std::swap(blocks[i], blocks[random.below(i + 1)]);
  }
};

// Where `tiles` is above 1, for each of so many tiles over widened state.
double seconds_of(const KernelTable& kernels, const Context& context, std::uint32_t rows,
                  std::uint32_t tiles = 1) {
  alignas(64) static float queries[kMaxAttentionRows * kAttentionStride],
      scores[kMaxAttentionRows * kAttentionStride], out[kMaxAttentionRows * kAttentionStride];
  static float maximum[kLanes], sum[kLanes];
  constexpr std::uint32_t kBlocks = kPartialTokens / kTokensPerBlock;
  alignas(64) static float wide[2 * kPartialTokens * kHeadDim];
  alignas(64) static std::uint8_t tile[kMaxAttentionRows * kTileBlockBytes * kHeadDim / kQuantBlock];
  Random random(2);
  const std::vector<float> values = normal_values(random, std::size(queries), 0.2f);
  std::copy(values.begin(), values.end(), queries);
  const std::vector<std::uint32_t> hidden(rows), visible(rows, kPartialTokens);
  const double begin = thread_seconds();
  for (std::uint32_t row = 0; row < rows; ++row)
    kernels.quantize(queries + row * kAttentionStride, kHeadDim / kQuantBlock, tile, rows, row);
  for (std::size_t block = 0; block + kBlocks <= context.blocks.size(); block += kBlocks) {
    AttentionPartial partial = {context.blocks.data() + block,
                                kHeadDim,
                                rows,
                                queries,
                                tile,
                                hidden.data(),
                                visible.data(),
                                0,
                                scores,
                                maximum,
                                sum,
                                out};
    partial.fetched = block > 0 ? 1 : 0;
    if (block + 2 * kBlocks <= context.blocks.size()) {
      partial.next = partial.blocks + kBlocks;
      partial.next_blocks = kBlocks;
    }
    if (tiles > 1) partial.wide = wide;
    for (std::uint32_t i = 0; i < tiles; ++i) {
      partial.widens = i == 0 ? 1 : 0;
      context.layout.kernels(kernels).attention_partial(partial);
      partial.next_blocks = 0;
    }
  }
  return (thread_seconds() - begin) / tiles;
}

void measure(InstructionSet set, std::uint32_t tokens, std::uint32_t rows) {
  const KernelTable& kernels = kernels_of(set);
  if (rows > kernels.attention_rows) return;
  const Context contexts[] = {{StateType::kF16, tokens}, {StateType::kQ8, tokens}};
  constexpr double kNever = std::numeric_limits<double>::max();
  const bool widens = rows >= kernels.wide_attention_rows;
  double best[2] = {kNever, kNever}, together = kNever;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (int type = 0; type < 2; ++type)
      best[type] = std::min(best[type], seconds_of(kernels, contexts[type], rows));
    if (widens) together = std::min(together, seconds_of(kernels, contexts[0], rows, kTiles));
  }
  const auto rate = [&](int type) {
    return static_cast<double>(contexts[type].layout.slice_bytes()) * tokens / kTokensPerBlock / best[type] /
           1e9;
  };
  fmt::print(
      "{:<7} {:>6} tokens {:>2} rows: f16 {:8.1f} us ({:5.1f} GB/s){}, q8 {:8.1f} us ({:5.1f} GB/s), {:.2f} "
      "x\n",
      instruction_set_name(set), tokens, rows, 1e6 * best[0], rate(0),
      widens ? fmt::format(", together {:8.1f} us", 1e6 * together) : "", 1e6 * best[1], rate(1),
      best[0] / best[1]);
}

}  // namespace
}  // namespace loci::cpu

int main() {
  for (const loci::InstructionSet set : loci::available_instruction_sets()) {
    if (set == loci::InstructionSet::kPlain) continue;
    for (const std::uint32_t tokens : {4096u, 262'144u}) {
      for (const std::uint32_t rows : {1u, 3u, 6u, 12u}) loci::cpu::measure(set, tokens, rows);
    }
  }
}
