// SPDX-License-Identifier: Apache-2.0
// Pensieve's figure 12 on this processor: attention of prompts of 8 tokens, 32 requests at once, over
// contexts whose blocks lie scattered in memory, against
//
//   contiguous   the same blocks in the order of their tokens: the ideal
//   near         the blocks scattered, but in 2 MiB of memory: jumps as many, but to pages that lie together
//   copy-out     the scattered blocks are first copied to contiguous memory, then the same kernel ("CopyOut +
//                Attention")
//   rounds       one token of each prompt at a time, as a kernel of single tokens would ("Multi-round
//                PagedAttention")
//
// One key/value head and one layer, f16. Times are of the thread, not the clock, and the best round of each
// counts, so that a busy machine disturbs less; the five take turns.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

constexpr std::uint32_t kHeadDim = 64, kRequests = 32, kPromptTokens = 8, kRounds = 9;
constexpr std::size_t kNearBytes = std::size_t{2} << 20;
constexpr std::uint32_t kPartialBlocks = kPartialTokens / kTokensPerBlock;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The contexts of all requests: `ordered` names their blocks as memory has them, `near` in any order within
// each kNearBytes, `scattered` in any order.
class Contexts {
 public:
  explicit Contexts(std::uint32_t tokens)
      : layout_(StateType::kF16, 1, kHeadDim), blocks_(tokens / kTokensPerBlock) {
    Random random(1);
    const std::size_t bytes = layout_.slice_bytes();
    memory_.reserve(kRequests * blocks_ * bytes, "a benchmark");
    out_.reserve(blocks_ * bytes, "a benchmark");
    for (std::size_t i = 0; i < std::size_t{kRequests} * blocks_; ++i) {
      slices_.push_back(reinterpret_cast<std::uint8_t*>(memory_.data()) + i * bytes);
      for (std::uint32_t t = 0; t < kTokensPerBlock; ++t) {
        const std::vector<float> x = normal_values(random, kHeadDim + kLanes);
        layout_.kernels(plain_kernels()).store_key(x.data(), kHeadDim, layout_.head(slices_.back(), 0), t);
        layout_.kernels(plain_kernels()).store_value(x.data(), kHeadDim, layout_.head(slices_.back(), 0), t);
      }
    }
    ordered = heads(slices_);
    const std::size_t near_blocks = std::min(kNearBytes / bytes, slices_.size());
    for (std::size_t begin = 0; begin + near_blocks <= slices_.size(); begin += near_blocks)
      shuffle(random, std::span(slices_).subspan(begin, near_blocks));
    near = heads(slices_);
    shuffle(random, slices_);
    scattered = heads(slices_);
    for (std::uint32_t i = 0; i < blocks_; ++i)
      copied.push_back(layout_.head(reinterpret_cast<std::uint8_t*>(out_.data()) + i * bytes, 0));
  }

  // A request's scattered blocks, to `copied`.
  void copy_out(std::uint32_t request) {
    for (std::uint32_t i = 0; i < blocks_; ++i)
      std::memcpy(reinterpret_cast<std::uint8_t*>(out_.data()) + i * layout_.slice_bytes(),
                  slices_[std::size_t{request} * blocks_ + i], layout_.slice_bytes());
  }
  const StateLayout& layout() const { return layout_; }
  std::uint32_t blocks() const { return blocks_; }

  std::vector<HeadState> ordered, near, scattered;  // request by request
  std::vector<HeadState> copied;                    // of one request

 private:
  static void shuffle(Random& random, std::span<std::uint8_t*> slices) {
    for (std::size_t i = slices.size() - 1; i > 0; --i) std::swap(slices[i], slices[random.below(i + 1)]);
  }
  std::vector<HeadState> heads(const std::vector<std::uint8_t*>& slices) const {
    std::vector<HeadState> out;
    for (std::uint8_t* slice : slices) out.push_back(layout_.head(slice, 0));
    return out;
  }
  StateLayout layout_;
  std::uint32_t blocks_;
  Buffer memory_, out_;
  std::vector<std::uint8_t*> slices_;
};

// `rows` of the prompt's tokens attend to one request's context.
void attend(const KernelTable& kernels, const Contexts& contexts, const HeadState* blocks,
            std::uint32_t rows) {
  alignas(64) static float queries[kMaxAttentionRows * kAttentionStride],
      scores[kMaxAttentionRows * kAttentionStride], out[kMaxAttentionRows * kAttentionStride];
  static float maximum[kLanes], sum[kLanes];
  static const bool filled = [] {
    Random random(2);
    const std::vector<float> values = normal_values(random, std::size(queries), 0.2f);
    std::copy(values.begin(), values.end(), queries);
    return true;
  }();
  static_cast<void>(filled);
  static const std::array<std::uint32_t, kMaxAttentionRows> hidden{};
  static const std::array<std::uint32_t, kMaxAttentionRows> visible = [] {
    std::array<std::uint32_t, kMaxAttentionRows> all;
    all.fill(kPartialTokens);
    return all;
  }();
  for (std::uint32_t block = 0; block + kPartialBlocks <= contexts.blocks(); block += kPartialBlocks) {
    AttentionPartial partial = {blocks + block, kHeadDim, rows,   queries, nullptr, hidden.data(),
                                visible.data(), 0,        scores, maximum, sum,     out};
    partial.fetched = block > 0 ? 1 : 0;
    if (block + 2 * kPartialBlocks <= contexts.blocks()) {
      partial.next = partial.blocks + kPartialBlocks;
      partial.next_blocks = kPartialBlocks;
    }
    contexts.layout().kernels(kernels).attention_partial(partial);
  }
}

enum Way : std::uint32_t { kContiguous, kNear, kScattered, kCopyOut, kRoundsOfOne, kWays };

double seconds_of(Way way, const KernelTable& kernels, Contexts& contexts) {
  const double begin = thread_seconds();
  for (std::uint32_t request = 0; request < kRequests; ++request) {
    const std::size_t first = std::size_t{request} * contexts.blocks();
    const HeadState* scattered = contexts.scattered.data() + first;
    if (way == kContiguous) attend(kernels, contexts, contexts.ordered.data() + first, kPromptTokens);
    if (way == kNear) attend(kernels, contexts, contexts.near.data() + first, kPromptTokens);
    if (way == kScattered) attend(kernels, contexts, scattered, kPromptTokens);
    if (way == kCopyOut) {
      contexts.copy_out(request);
      attend(kernels, contexts, contexts.copied.data(), kPromptTokens);
    }
    for (std::uint32_t token = 0; way == kRoundsOfOne && token < kPromptTokens; ++token)
      attend(kernels, contexts, scattered, 1);
  }
  return thread_seconds() - begin;
}

void measure(InstructionSet set, std::uint32_t tokens) {
  const KernelTable& kernels = kernels_of(set);
  if (kPromptTokens > kernels.attention_rows) return;
  Contexts contexts(tokens);
  std::array<double, kWays> best;
  best.fill(std::numeric_limits<double>::max());
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::uint32_t way = 0; way < kWays; ++way)
      best[way] = std::min(best[way], seconds_of(static_cast<Way>(way), kernels, contexts));
  }
  fmt::print(
      "| {} | {:>5} | {:8.0f} | {:8.0f} ({:.2f}) | {:8.0f} ({:.2f}) | {:8.0f} ({:.2f}) | {:8.0f} ({:.2f}) "
      "|\n",
      instruction_set_name(set), tokens, 1e6 * best[kContiguous], 1e6 * best[kNear],
      best[kContiguous] / best[kNear], 1e6 * best[kScattered], best[kContiguous] / best[kScattered],
      1e6 * best[kCopyOut], best[kContiguous] / best[kCopyOut], 1e6 * best[kRoundsOfOne],
      best[kContiguous] / best[kRoundsOfOne]);
}

}  // namespace
}  // namespace loci::cpu

int main() {
  fmt::print("{} requests, prompts of {} tokens; us, and in brackets the speed over contiguous\n\n",
             loci::cpu::kRequests, loci::cpu::kPromptTokens);
  fmt::print(
      "| kernels | context | contiguous | near | scattered | copy-out | rounds "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const loci::InstructionSet set : loci::available_instruction_sets()) {
    if (set == loci::InstructionSet::kPlain) continue;
    for (const std::uint32_t tokens : {256u, 1024u, 4096u, 16'384u}) loci::cpu::measure(set, tokens);
  }
}
