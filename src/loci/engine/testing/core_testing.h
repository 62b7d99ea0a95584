// SPDX-License-Identifier: Apache-2.0
// What the tests of the core share.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"

namespace loci {

using Tokens = std::vector<TokenId>;

// `count` tokens, first, first + 1, ...
inline Tokens run_of(std::uint32_t first, std::size_t count) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(TokenId(first + static_cast<std::uint32_t>(i)));
  return tokens;
}

inline Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A core with so many blocks on the device and nothing below.
inline CoreConfig config_of(std::uint32_t blocks, std::uint32_t batch = 512) {
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = blocks}};
  config.layers = 2;
  config.context_tokens = blocks * kBlockTokens;
  config.max_batch_tokens = batch;
  return config;
}

}  // namespace loci
