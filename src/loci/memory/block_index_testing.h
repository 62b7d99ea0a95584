// SPDX-License-Identifier: Apache-2.0
// What the index's tests share: an index of one group, and blocks in it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "loci/memory/block_index.h"

namespace loci {

using Tokens = std::vector<TokenId>;

// First in, first out by the time of the last use; enough for the index's own tests.
class OldestFirst final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts&) override { blocks_.push_back(block); }
  void erase(BlockId block, const EvictionFacts&) override {
    blocks_.erase(std::find(blocks_.begin(), blocks_.end(), block));
  }
  BlockId choose(Nanos) override { return blocks_.empty() ? kNoBlock : blocks_.front(); }
  std::size_t size() const override { return blocks_.size(); }

 private:
  std::vector<BlockId> blocks_;
};

inline Tokens tokens_of(std::initializer_list<std::uint32_t> values, std::size_t size = 0) {
  Tokens tokens;
  for (const auto value : values) tokens.push_back(TokenId(value));
  while (tokens.size() < size) tokens.push_back(TokenId(static_cast<std::uint32_t>(1000 + tokens.size())));
  return tokens;
}

inline IndexPools pools(std::initializer_list<std::uint32_t> slots) {
  IndexPools all;
  for (const std::uint32_t count : slots)
    all.device.push_back({count, std::make_unique<OldestFirst>(), nullptr});
  return all;
}

class BlockIndexTest : public testing::Test {
 protected:
  explicit BlockIndexTest(IndexPools all = pools({8})) : index_(std::move(all)) { index_.watch_places(); }
  ChainKey key(BlockId parent, const Tokens& tokens) {
    return hasher_.child(index_.block(parent).key, tokens);
  }
  BlockPin root(const char* group = "g") { return index_.open_root(hasher_.root(group)); }
  BlockPin tail(BlockId parent, const Tokens& tokens) {
    BlockPin pin = index_.open_tail(parent);
    EXPECT_TRUE(index_.place(pin, 0));
    const auto token = index_.claim(pin.block());
    index_.append(*token, tokens);
    return pin;
  }
  BlockPin full(BlockId parent, const Tokens& tokens) {
    const ChainKey k = key(parent, tokens);
    BlockPin pin = index_.open_full(parent, k, tokens);
    if (index_.block(pin.block()).parts[0]) {
      index_.hold(pin, 0);
    } else {
      EXPECT_TRUE(index_.place(pin, 0));
    }
    const auto token = index_.claim(pin.block());
    index_.fill(*token, kBlockTokens);
    return pin;
  }

  ChainKeyHasher hasher_{{}, {}};
  BlockIndex index_;
};

}  // namespace loci
