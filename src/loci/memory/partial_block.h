// SPDX-License-Identifier: Apache-2.0
// Blocks that lower tiers keep with less than kBlockTokens tokens: the ends of sequences
// (docs/decisions/partial-blocks.md). Such a block has a name like any other. Its tokens are those that it
// holds, then kNoToken up to the block's end. So no other block is taken for it, and no prompt matches more
// than it holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "loci/base/ids.h"
#include "loci/compute/backend.h"

namespace loci {

inline constexpr TokenId kNoToken{UINT32_MAX};  // no model has it, and no request may name it

using BlockTokens = std::array<TokenId, kBlockTokens>;

// `tokens`: at most kBlockTokens.
inline BlockTokens partial_tokens(std::span<const TokenId> tokens) {
  BlockTokens block;
  block.fill(kNoToken);
  std::copy(tokens.begin(), tokens.end(), block.begin());
  return block;
}

// How many tokens the block holds.
inline std::uint32_t tokens_held(const BlockTokens& tokens) {
  return static_cast<std::uint32_t>(std::find(tokens.begin(), tokens.end(), kNoToken) - tokens.begin());
}

inline bool is_partial(const BlockTokens& tokens) { return tokens.back() == kNoToken; }

}  // namespace loci
