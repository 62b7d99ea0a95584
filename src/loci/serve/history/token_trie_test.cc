// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/history/token_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "loci/base/random.h"

namespace loci {
namespace {

using Tokens = std::vector<TokenId>;

Tokens tokens_of(std::initializer_list<std::uint32_t> values) {
  Tokens tokens;
  for (const std::uint32_t value : values) tokens.emplace_back(value);
  return tokens;
}

TokenTrie::Position walk(const TokenTrie& trie, const Tokens& tokens) {
  TokenTrie::Position at = trie.root();
  for (const TokenId token : tokens) {
    at = TokenTrie::step(at, token);
    if (at.node == nullptr) break;
  }
  return at;
}

bool has(const TokenTrie& trie, const Tokens& tokens) { return walk(trie, tokens).node != nullptr; }

bool begins(const Tokens& beginning, const Tokens& whole) {
  return beginning.size() <= whole.size() && std::equal(beginning.begin(), beginning.end(), whole.begin());
}

TEST(TokenTrie, MarksWherePromptsAndRepliesEnd) {
  TokenTrie trie;
  trie.remember(tokens_of({1, 2, 3}), tokens_of({4, 5}));
  trie.remember(tokens_of({1, 2}), tokens_of({3, 9}));
  trie.check_invariants();
  const auto prompt = walk(trie, tokens_of({1, 2, 3}));
  EXPECT_TRUE(prompt.at_end() && prompt.node->ends_prompt && !prompt.node->ends_reply);
  EXPECT_TRUE(prompt.node->is_reply) << "the second sequence said it";
  const auto early = walk(trie, tokens_of({1, 2}));
  EXPECT_TRUE(early.at_end() && early.node->ends_prompt && !early.node->is_reply);
  const auto reply = walk(trie, tokens_of({1, 2, 3, 4, 5}));
  EXPECT_TRUE(reply.at_end() && reply.node->ends_reply && reply.node->is_reply);
  EXPECT_TRUE(walk(trie, tokens_of({1, 2, 3, 9})).node->ends_reply);
  EXPECT_FALSE(has(trie, tokens_of({1, 2, 9})));
  EXPECT_EQ(TokenTrie::path(reply), tokens_of({1, 2, 3, 4, 5}));
  EXPECT_TRUE(TokenTrie::path(trie.root()).empty());
}

TEST(TokenTrie, ForgetsTheLeastRecentlyRemembered) {
  TokenTrie trie;
  trie.remember(tokens_of({1, 2}), tokens_of({3}));
  trie.remember(tokens_of({1, 2}), tokens_of({4}));
  trie.remember(tokens_of({7}), tokens_of({8}));
  trie.remember(tokens_of({1, 2}), tokens_of({3}));
  trie.shrink(trie.size_bytes() - 1);
  EXPECT_FALSE(has(trie, tokens_of({1, 2, 4})));
  trie.shrink(trie.size_bytes() - 1);
  EXPECT_FALSE(has(trie, tokens_of({7, 8})));
  EXPECT_TRUE(has(trie, tokens_of({7})));
  EXPECT_TRUE(has(trie, tokens_of({1, 2, 3})));
  trie.check_invariants();
  trie.shrink(0);
  EXPECT_EQ(trie.size_bytes(), 0u);
  trie.check_invariants();
}

// Against a list of all sequences, the newest first.
TEST(TokenTrie, EqualsAListOfSequences) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    TokenTrie trie;
    std::deque<Tokens> sequences;
    const auto random_run = [&](std::uint64_t most) {
      Tokens tokens;
      for (std::uint64_t left = random.below(most); left > 0; --left)
        tokens.emplace_back(static_cast<std::uint32_t>(random.below(3)));
      return tokens;
    };
    for (int i = 0; i < 60; ++i) {
      const Tokens prompt = random_run(8), reply = random_run(5);
      trie.remember(prompt, reply);
      Tokens all = prompt;
      all.insert(all.end(), reply.begin(), reply.end());
      sequences.push_front(all);
      trie.check_invariants();
    }
    const auto expect_equal = [&] {
      for (int i = 0; i < 50; ++i) {
        const Tokens wanted = random_run(10);
        const bool is_known = std::any_of(sequences.begin(), sequences.end(),
                                          [&](const Tokens& tokens) { return begins(wanted, tokens); });
        ASSERT_EQ(has(trie, wanted), is_known);
      }
    };
    expect_equal();
    for (int i = 0; i < 10; ++i) {
      const Tokens forgotten = sequences[random.below(sequences.size())];
      trie.forget(forgotten);
      trie.check_invariants();
      if (std::none_of(sequences.begin(), sequences.end(), [&](const Tokens& other) {
            return other.size() > forgotten.size() && begins(forgotten, other);
          }))
        std::erase_if(sequences, [&](const Tokens& other) { return begins(other, forgotten); });
    }
    expect_equal();
    // The newest stay whole, whatever is forgotten.
    trie.shrink(trie.size_bytes() / 2);
    trie.check_invariants();
    EXPECT_TRUE(has(trie, sequences.front()));
  }
}

TEST(TokenTrie, LongChainsComeApart) {
  TokenTrie trie;
  Tokens tokens;
  for (std::uint32_t i = 0; i < 20'000; ++i) tokens.emplace_back(i);
  for (std::size_t length = 1; length <= tokens.size(); length += 7)
    trie.remember(std::span(tokens).first(length), {});
  EXPECT_TRUE(has(trie, tokens_of({0, 1, 2, 3})));
}

}  // namespace
}  // namespace loci
