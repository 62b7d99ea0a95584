// SPDX-License-Identifier: Apache-2.0
// Pensieve's figure 12 on this processor: attention of prompts of 8 tokens, 32 requests at once, over
// contexts whose blocks lie scattered in memory, against
//
//   contiguous   the same blocks in the order of their tokens: the ideal
//   near         the blocks scattered, but in 2 MiB of memory: jumps as many, but to pages that lie together
//   slots        the blocks in order, but one layer of a pool whose slots hold several: the order of slots
//                alone
//   copy-out     the scattered blocks are first copied to contiguous memory, then the same kernel
//                ("CopyOut + Attention")
//   rounds       one token of each prompt at a time, as a kernel of single tokens would ("Multi-round
//                PagedAttention")
//
// One layer, f16, of one key/value head and of three, which lie side by side in a block and are read one
// after the other, as in a pass. Times are of the thread, not the clock, and the best round of each counts,
// so that a busy machine disturbs less; the six take turns.
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
constexpr std::uint32_t kSlotHeads = 9;  // heads of all layers of a slot
constexpr std::size_t kNearBytes = std::size_t{2} << 20;
constexpr std::uint32_t kPartialBlocks = kPartialTokens / kTokensPerBlock;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The contexts of all requests: `ordered` names their blocks as memory has them, `near` in any order within
// each kNearBytes, `scattered` in any order; `slots` names one layer of slots in order.
class Contexts {
 public:
  Contexts(std::uint32_t tokens, std::uint32_t kv_heads)
      : layout_(StateType::kF16, kv_heads, kHeadDim), blocks_(tokens / kTokensPerBlock), kv_heads_(kv_heads) {
    Random random(1);
    const std::size_t bytes = layout_.slice_bytes();
    memory_.reserve(kRequests * blocks_ * bytes, "a benchmark");
    out_.reserve(blocks_ * bytes, "a benchmark");
    const std::size_t slot_bytes = kSlotHeads / kv_heads * bytes;
    slots_.reserve(kRequests * blocks_ * slot_bytes, "a benchmark");
    for (std::size_t i = 0; i < std::size_t{kRequests} * blocks_; ++i) {
      slices_.push_back(reinterpret_cast<std::uint8_t*>(memory_.data()) + i * bytes);
      for (std::uint32_t t = 0; t < kTokensPerBlock * kv_heads; ++t) {
        const HeadState head = layout_.head(slices_.back(), t / kTokensPerBlock);
        const std::vector<float> x = normal_values(random, kHeadDim + kLanes);
        layout_.kernels(plain_kernels()).store_key(x.data(), kHeadDim, head, t % kTokensPerBlock);
        layout_.kernels(plain_kernels()).store_value(x.data(), kHeadDim, head, t % kTokensPerBlock);
      }
    }
    ordered = heads(slices_);
    std::vector<std::uint8_t*> in_slots;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      in_slots.push_back(slots_.data() + i * slot_bytes);
      std::memcpy(in_slots.back(), slices_[i], bytes);
    }
    slots = heads(in_slots);
    const std::size_t near_blocks = std::min(kNearBytes / bytes, slices_.size());
    for (std::size_t begin = 0; begin + near_blocks <= slices_.size(); begin += near_blocks)
      shuffle(random, std::span(slices_).subspan(begin, near_blocks));
    near = heads(slices_);
    shuffle(random, slices_);
    scattered = heads(slices_);
    std::vector<std::uint8_t*> in_out;
    for (std::uint32_t i = 0; i < blocks_; ++i) in_out.push_back(out_.data() + i * bytes);
    copied = heads(in_out);
  }

  // A request's scattered blocks, to `copied`.
  void copy_out(std::uint32_t request) {
    for (std::uint32_t i = 0; i < blocks_; ++i)
      std::memcpy(reinterpret_cast<std::uint8_t*>(out_.data()) + i * layout_.slice_bytes(),
                  slices_[std::size_t{request} * blocks_ + i], layout_.slice_bytes());
  }
  const StateLayout& layout() const { return layout_; }
  std::uint32_t blocks() const { return blocks_ * kv_heads_; }  // of a request's heads

  // Request by request, [partial][head][block].
  std::vector<HeadState> ordered, near, slots, scattered;
  std::vector<HeadState> copied;  // of one request

 private:
  static void shuffle(Random& random, std::span<std::uint8_t*> slices) {
    for (std::size_t i = slices.size() - 1; i > 0; --i) std::swap(slices[i], slices[random.below(i + 1)]);
  }
  std::vector<HeadState> heads(const std::vector<std::uint8_t*>& slices) const {
    std::vector<HeadState> out;
    for (std::size_t first = 0; first < slices.size(); first += kPartialBlocks) {
      for (std::uint32_t head = 0; head < kv_heads_; ++head) {
        for (std::uint32_t block = 0; block < kPartialBlocks; ++block)
          out.push_back(layout_.head(slices[first + block], head));
      }
    }
    return out;
  }
  StateLayout layout_;
  std::uint32_t blocks_, kv_heads_;
  Buffer memory_, out_, slots_;
  std::vector<std::uint8_t*> slices_;
};

// `rows` of the prompt's tokens attend to one request's context, with each head.
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

enum Way : std::uint32_t { kContiguous, kNear, kSlots, kScattered, kCopyOut, kRoundsOfOne, kWays };

double seconds_of(Way way, const KernelTable& kernels, Contexts& contexts) {
  const double begin = thread_seconds();
  for (std::uint32_t request = 0; request < kRequests; ++request) {
    const std::size_t first = std::size_t{request} * contexts.blocks();
    const HeadState* scattered = contexts.scattered.data() + first;
    if (way == kContiguous) attend(kernels, contexts, contexts.ordered.data() + first, kPromptTokens);
    if (way == kNear) attend(kernels, contexts, contexts.near.data() + first, kPromptTokens);
    if (way == kSlots) attend(kernels, contexts, contexts.slots.data() + first, kPromptTokens);
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

void measure(InstructionSet set, std::uint32_t kv_heads, std::uint32_t tokens) {
  const KernelTable& kernels = kernels_of(set);
  if (kPromptTokens > kernels.attention_rows) return;
  Contexts contexts(tokens, kv_heads);
  std::array<double, kWays> best;
  best.fill(std::numeric_limits<double>::max());
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::uint32_t way = 0; way < kWays; ++way)
      best[way] = std::min(best[way], seconds_of(static_cast<Way>(way), kernels, contexts));
  }
  fmt::print("| {} | {} | {:>5} | {:8.0f} |", instruction_set_name(set), kv_heads, tokens,
             1e6 * best[kContiguous]);
  for (std::uint32_t way = kNear; way < kWays; ++way)
    fmt::print(" {:8.0f} ({:.2f}) |", 1e6 * best[way], best[kContiguous] / best[way]);
  fmt::print("\n");
}

}  // namespace
}  // namespace loci::cpu

int main() {
  fmt::print("{} requests, prompts of {} tokens; us, and in brackets the speed over contiguous\n\n",
             loci::cpu::kRequests, loci::cpu::kPromptTokens);
  fmt::print(
      "| kernels | heads | context | contiguous | near | slots | scattered | copy-out | rounds "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (const loci::InstructionSet set : loci::available_instruction_sets()) {
    if (set == loci::InstructionSet::kPlain) continue;
    for (const std::uint32_t kv_heads : {1u, 3u}) {
      for (const std::uint32_t tokens : {256u, 1024u, 4096u, 16'384u, 32'768u})
        loci::cpu::measure(set, kv_heads, tokens);
    }
  }
}
