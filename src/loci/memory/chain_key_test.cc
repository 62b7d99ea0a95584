// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/chain_key.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace loci {
namespace {

std::vector<TokenId> block_of(std::uint32_t first) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < kBlockTokens; ++i) tokens.push_back(TokenId(first + i));
  return tokens;
}

TEST(ChainKey, DependsOnAllThatMakesStateUnlike) {
  const std::array<std::uint8_t, 32> secret{1};
  const std::array<std::uint8_t, 16> model{2};
  const ChainKeyHasher hasher(secret, model);
  const ChainKeyHasher other_secret(std::array<std::uint8_t, 32>{9}, model);
  const ChainKeyHasher other_model(secret, std::array<std::uint8_t, 16>{9});
  std::set<ChainKey> keys;
  std::size_t made = 0;
  const auto add = [&](const ChainKey& key) {
    keys.insert(key);
    ++made;
  };
  add(hasher.root("a"));
  add(hasher.root("b"));
  add(hasher.root(""));
  add(other_secret.root("a"));
  add(other_model.root("a"));
  const auto tokens = block_of(0);
  for (const char* group : {"a", "b"}) {
    const ChainKey first = hasher.child(hasher.root(group), tokens);
    add(first);
    add(hasher.child(first, tokens));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      auto changed = tokens;
      changed[i].value ^= 0x80000000u;
      add(hasher.child(hasher.root(group), changed));
    }
  }
  add(other_secret.child(hasher.root("a"), tokens));
  const ChainKey last = hasher.child(hasher.root("a"), tokens);
  for (const ChainKey& dropped : {last, hasher.child(last, tokens)}) {
    for (const auto& [begin, end] : {std::pair(32u, 64u), {32u, 96u}, {64u, 96u}, {0u, 64u}}) {
      for (const char* group : {"", "a", "b"}) {
        const ChainKey lineage = hasher.lineage(dropped, begin, end, group);
        add(lineage);
        add(hasher.child(lineage, tokens));
        add(other_secret.lineage(dropped, begin, end, group));
        add(hasher.lineage(lineage, begin, end, group));  // a cut of what was cut before
      }
    }
    add(hasher.gate(dropped, "a"));
  }
  EXPECT_EQ(keys.size(), made);
  EXPECT_EQ(hasher.child(hasher.root("a"), tokens),
            ChainKeyHasher(secret, model).child(hasher.root("a"), tokens));
}

// The keys name state on disks and between machines: they are the same everywhere. Expected values are
// those of Python's hashlib.blake2b(bytes, digest_size=16, key=bytes(32)).
TEST(ChainKey, IsBlake2b) {
  const ChainKeyHasher hasher({}, {});
  const auto bytes = [](const ChainKey& key) { return std::vector<int>(key.bytes.begin(), key.bytes.end()); };
  const ChainKey root = hasher.root("public");
  const ChainKey child = hasher.child(root, block_of(100));
  EXPECT_EQ(bytes(root),
            (std::vector<int>{171, 11, 169, 211, 242, 100, 147, 130, 53, 107, 202, 235, 150, 190, 210, 118}));
  EXPECT_EQ(bytes(child),
            (std::vector<int>{194, 112, 97, 24, 252, 101, 11, 220, 221, 108, 30, 151, 77, 186, 148, 206}));
  EXPECT_EQ(bytes(hasher.public_root()),
            (std::vector<int>{14, 37, 39, 125, 0, 46, 211, 72, 119, 135, 81, 226, 50, 190, 120, 69}));
  EXPECT_EQ(bytes(hasher.gate(child, "tenant")),
            (std::vector<int>{242, 243, 57, 110, 14, 77, 25, 148, 197, 13, 188, 200, 33, 229, 77, 102}));
  EXPECT_EQ(bytes(hasher.lineage(child, 32, 1056, "tenant")),
            (std::vector<int>{110, 62, 195, 187, 165, 254, 6, 217, 67, 229, 238, 84, 103, 148, 119, 129}));
}

}  // namespace
}  // namespace loci
