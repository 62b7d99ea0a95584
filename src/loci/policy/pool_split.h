// SPDX-License-Identifier: Apache-2.0
// How memory for state is split over the pools of layer groups.
//
// To continue a conversation of n tokens, ceil(n / 32) blocks are needed in groups without a window, and the
// blocks of one window in the others; a running request needs the same. The pools should run out together,
// because state in one pool is of no use without its counterpart in the others. So slots are in proportion to
// what a conversation of an expected length needs: 2,048 tokens, or two of the widest windows where that is
// more, or the context where that is less. (If longer ones were expected, shorter ones would suffer: a window
// that is lost makes its whole conversation useless, while a slot too many costs only its memory.)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "loci/base/status.h"

namespace loci {

struct PoolGroup {
  std::uint32_t window = 0;  // 0: all tokens
  std::uint64_t block_bytes = 0;
};

// The tokens of the conversation that pools are split for.
std::uint32_t expected_tokens(std::span<const PoolGroup> groups, std::uint32_t context_tokens);

// Blocks that `tokens` tokens need in a group, at most: with a window, it and a block at either end.
std::uint32_t blocks_needed(const PoolGroup& group, std::uint32_t tokens);

// The most slots that a pool may have: 2^36 tokens, far more than machines have memory for. With the spare
// ones behind them they can still be counted in 32 bits.
inline constexpr std::uint32_t kPoolSlotsMax = std::uint32_t{1} << 31;

// Errors: kInvalidArgument naming `field`, where one of the pools that `bytes` would give has more than that.
Status check_pool_slots(std::uint64_t bytes, std::span<const std::uint32_t> slots, std::string_view field);

// Slots of each group's pool, `bytes` in all at most; some may be 0 where there is too little.
std::vector<std::uint32_t> split_pool(std::uint64_t bytes, std::span<const PoolGroup> groups,
                                      std::uint32_t context_tokens);

}  // namespace loci
