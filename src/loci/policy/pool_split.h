// SPDX-License-Identifier: Apache-2.0
// How memory for state is split over the pools of layer groups.
//
// A conversation of n tokens that is kept needs, to be gone on with, ceil(n / 32) blocks in groups without
// window and the blocks of one window in the others; so does a request that runs. The pools should run
// out together: state in one that lacks its counterpart in another is of no use. So slots are in
// proportion to what a conversation of an expected length needs: 2,048 tokens, or two of the widest
// windows where that is more, or the context where that is less. (Expecting longer ones costs those that
// are shorter: a window that is lost takes all of its conversation with it, while a slot too many costs
// its memory alone.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loci {

struct PoolGroup {
  std::uint32_t window = 0;  // 0: all tokens
  std::uint64_t block_bytes = 0;
};

// The tokens of the conversation that pools are split for.
std::uint32_t expected_tokens(std::span<const PoolGroup> groups, std::uint32_t context_tokens);

// Blocks that `tokens` tokens need in a group, at most: with a window, it and a block at either end.
std::uint32_t blocks_needed(const PoolGroup& group, std::uint32_t tokens);

// Slots of each group's pool, `bytes` in all at most; some may be 0 where there is too little.
std::vector<std::uint32_t> split_pool(std::uint64_t bytes, std::span<const PoolGroup> groups,
                                      std::uint32_t context_tokens);

}  // namespace loci
