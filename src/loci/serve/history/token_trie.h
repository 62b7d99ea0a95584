// SPDX-License-Identifier: Apache-2.0
// Token sequences that share their beginnings: a compressed trie. It forgets by edges, the least recently
// remembered first, and a leaf before what leads to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/ids.h"

namespace loci {

// Thread-compatible: several may read, one alone may write.
class TokenTrie {
 public:
  struct Node;
  // Children are in ascending order of their first tokens, all of them different.
  struct Child {
    TokenId first;
    std::unique_ptr<Node> node;
  };
  struct Node {
    Node* parent = nullptr;       // null: the root
    std::vector<TokenId> tokens;  // the edge to it; empty for the root alone
    std::vector<Child> children;
    std::uint64_t remembered_at = 0;  // grows with each remember(); at least that of every child
    bool is_reply = false;            // its edge was (part of) a reply at least once
    bool ends_prompt = false;         // a prompt ended here
    bool ends_reply = false;          // a reply ended here

   private:
    friend class TokenTrie;
    Node* newer = nullptr;  // of all nodes but the root, by the time of their last use
    Node* older = nullptr;
  };

  // After `used` tokens of the edge to `node`; at the root 0. Valid until the next remember(), shrink() or
  // forget().
  struct Position {
    const Node* node = nullptr;
    std::size_t used = 0;

    bool at_end() const { return used == node->tokens.size(); }
  };

  TokenTrie();
  ~TokenTrie();
  TokenTrie(const TokenTrie&) = delete;
  TokenTrie& operator=(const TokenTrie&) = delete;

  // Time: the length of the sequence, and the children of the nodes where it parts from others.
  void remember(std::span<const TokenId> prompt, std::span<const TokenId> reply);
  // Forgets until size_bytes() is at most `bytes`, or nothing is left.
  void shrink(std::size_t bytes);
  // Forgets what was remembered of a sequence, from its end up to where another one goes on. Time: as
  // remember().
  void forget(std::span<const TokenId> tokens);
  std::size_t size_bytes() const { return size_bytes_; }

  Position root() const { return {.node = root_.get()}; }
  // The position one token further; a null node where nothing that is remembered goes on so.
  static Position step(Position at, TokenId token);
  // The tokens from the root to a position.
  static std::vector<TokenId> path(Position at);

  // Aborts when an invariant is broken:
  //   1. size_bytes() is what the nodes take;
  //   2. children are in order, begin with their edges' first tokens, and no edge is empty;
  //   3. every node but the root is in the list of uses once, and behind its parent.
  void check_invariants() const;

 private:
  static std::size_t bytes_of(const Node& node);
  Node* extend(Node* at, std::span<const TokenId> tokens, bool is_reply);
  Node* add_leaf(Node* parent, std::span<const TokenId> tokens);
  Node* split(Node* node, std::size_t at);
  void use(Node* node);
  void link_newest(Node* node);
  void unlink(Node* node);
  void drop(Node* leaf);

  std::unique_ptr<Node> root_;
  Node* newest_ = nullptr;
  Node* oldest_ = nullptr;
  std::uint64_t time_ = 0;
  std::size_t size_bytes_ = 0;
};

}  // namespace loci
