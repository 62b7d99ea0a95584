// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/history/token_trie.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// A node's allocation, and its entry among the children of its parent (whose vector may be half empty).
constexpr std::size_t kNodeBytes = sizeof(TokenTrie::Node) + 2 * sizeof(TokenTrie::Child) + 32;

template <typename Children>
auto lower_bound(Children& children, TokenId token) {
  return std::lower_bound(
      children.begin(), children.end(), token,
      [](const TokenTrie::Child& child, TokenId wanted) { return child.first.value < wanted.value; });
}

template <typename Children>
auto find_child(Children& children, TokenId token) {
  const auto found = lower_bound(children, token);
  return found != children.end() && found->first == token ? found : children.end();
}

}  // namespace

TokenTrie::TokenTrie() : root_(std::make_unique<Node>()) {}

// Leaf by leaf: a chain of nodes may be longer than the stack is deep.
TokenTrie::~TokenTrie() { shrink(0); }

std::size_t TokenTrie::bytes_of(const Node& node) {
  return kNodeBytes + node.tokens.size() * sizeof(TokenId);
}

void TokenTrie::remember(std::span<const TokenId> prompt, std::span<const TokenId> reply) {
  ++time_;
  Node* const prompt_end = extend(root_.get(), prompt, false);
  Node* const reply_end = extend(prompt_end, reply, true);
  if (prompt_end != root_.get()) prompt_end->ends_prompt = true;
  if (!reply.empty()) reply_end->ends_reply = true;
  // Parents are used after their children, so that the least recently used node is always a leaf.
  for (Node* node = reply_end; node != root_.get(); node = node->parent) use(node);
}

TokenTrie::Node* TokenTrie::extend(Node* at, std::span<const TokenId> tokens, bool is_reply) {
  while (!tokens.empty()) {
    const auto found = find_child(at->children, tokens.front());
    if (found == at->children.end()) {
      Node* const leaf = add_leaf(at, tokens);
      leaf->is_reply = is_reply;
      return leaf;
    }
    Node* child = found->node.get();
    const auto parting =
        std::mismatch(child->tokens.begin(), child->tokens.end(), tokens.begin(), tokens.end());
    const auto common = static_cast<std::size_t>(parting.first - child->tokens.begin());
    if (common < child->tokens.size()) child = split(child, common);
    child->is_reply = child->is_reply || is_reply;
    at = child;
    tokens = tokens.subspan(common);
  }
  return at;
}

TokenTrie::Node* TokenTrie::add_leaf(Node* parent, std::span<const TokenId> tokens) {
  auto made = std::make_unique<Node>();
  Node* const node = made.get();
  node->parent = parent;
  node->tokens.assign(tokens.begin(), tokens.end());
  const auto place = lower_bound(parent->children, tokens.front());
  parent->children.insert(place, {.first = tokens.front(), .node = std::move(made)});
  link_newest(node);
  size_bytes_ += bytes_of(*node);
  return node;
}

// The first `at` tokens of the node's edge get a node of their own, which is returned.
TokenTrie::Node* TokenTrie::split(Node* node, std::size_t at) {
  const auto place = find_child(node->parent->children, node->tokens.front());
  size_bytes_ -= bytes_of(*node);
  auto made = std::make_unique<Node>();
  Node* const upper = made.get();
  upper->parent = node->parent;
  upper->tokens.assign(node->tokens.begin(), node->tokens.begin() + static_cast<std::ptrdiff_t>(at));
  upper->remembered_at = node->remembered_at;
  upper->is_reply = node->is_reply;
  node->tokens =
      std::vector<TokenId>(node->tokens.begin() + static_cast<std::ptrdiff_t>(at), node->tokens.end());
  node->parent = upper;
  upper->children.push_back({.first = node->tokens.front(), .node = std::move(place->node)});
  place->node = std::move(made);
  // In the list of uses just before its child.
  upper->older = node;
  upper->newer = node->newer;
  (node->newer == nullptr ? newest_ : node->newer->older) = upper;
  node->newer = upper;
  size_bytes_ += bytes_of(*upper) + bytes_of(*node);
  return upper;
}

void TokenTrie::use(Node* node) {
  unlink(node);
  link_newest(node);
  node->remembered_at = time_;
}

void TokenTrie::link_newest(Node* node) {
  node->older = newest_;
  node->newer = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer) = node;
  newest_ = node;
}

void TokenTrie::unlink(Node* node) {
  (node->newer == nullptr ? newest_ : node->newer->older) = node->older;
  (node->older == nullptr ? oldest_ : node->older->newer) = node->newer;
}

void TokenTrie::drop(Node* leaf) {
  LOCI_CHECK(leaf->children.empty(), "what is dropped leads to nothing");
  unlink(leaf);
  size_bytes_ -= bytes_of(*leaf);
  std::vector<Child>& children = leaf->parent->children;
  children.erase(find_child(children, leaf->tokens.front()));
}

void TokenTrie::shrink(std::size_t bytes) {
  while (size_bytes_ > bytes && oldest_ != nullptr) drop(oldest_);
}

void TokenTrie::forget(std::span<const TokenId> tokens) {
  Node* at = root_.get();
  while (!tokens.empty()) {
    const auto found = find_child(at->children, tokens.front());
    if (found == at->children.end()) break;
    const std::vector<TokenId>& edge = found->node->tokens;
    if (tokens.size() < edge.size() || !std::equal(edge.begin(), edge.end(), tokens.begin())) break;
    at = found->node.get();
    tokens = tokens.subspan(edge.size());
  }
  while (at != root_.get() && at->children.empty()) {
    Node* const parent = at->parent;
    drop(at);
    at = parent;
  }
}

TokenTrie::Position TokenTrie::step(Position at, TokenId token) {
  if (!at.at_end()) {
    if (at.node->tokens[at.used] != token) return {};
    return {.node = at.node, .used = at.used + 1};
  }
  const auto found = find_child(at.node->children, token);
  if (found == at.node->children.end()) return {};
  return {.node = found->node.get(), .used = 1};
}

std::vector<TokenId> TokenTrie::path(Position at) {
  std::vector<TokenId> tokens;
  for (std::size_t used = at.used; at.node != nullptr; used = at.node ? at.node->tokens.size() : 0) {
    for (std::size_t i = used; i > 0; --i) tokens.push_back(at.node->tokens[i - 1]);
    at.node = at.node->parent;
  }
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

void TokenTrie::check_invariants() const {
  std::size_t bytes = 0;
  std::size_t nodes = 0;
  std::vector<const Node*> open = {root_.get()};
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    for (std::size_t i = 0; i < node->children.size(); ++i) {
      const Child& child = node->children[i];
      LOCI_CHECK(child.node->parent == node, "invariant 2: a child knows its parent");
      LOCI_CHECK(!child.node->tokens.empty() && child.node->tokens.front() == child.first,
                 "invariant 2: a child is filed under its first token");
      LOCI_CHECK(i == 0 || node->children[i - 1].first.value < child.first.value,
                 "invariant 2: children are in order");
      bytes += bytes_of(*child.node);
      ++nodes;
      open.push_back(child.node.get());
    }
  }
  LOCI_CHECK(bytes == size_bytes_, "invariant 1: what the nodes take");
  std::vector<const Node*> seen;
  for (const Node* node = newest_; node != nullptr; node = node->older) {
    LOCI_CHECK(seen.size() < nodes, "invariant 3: every node is in the list once");
    LOCI_CHECK(node->older == nullptr || node->older->newer == node, "invariant 3: the list goes both ways");
    LOCI_CHECK(node->parent == root_.get() || node->parent->remembered_at >= node->remembered_at,
               "invariant 3: a parent was used no earlier");
    LOCI_CHECK(node->parent == root_.get() || std::find(seen.begin(), seen.end(), node->parent) != seen.end(),
               "invariant 3: a parent is in front of its children");
    seen.push_back(node);
  }
  LOCI_CHECK(seen.size() == nodes, "invariant 3: every node is in the list");
}

}  // namespace loci
