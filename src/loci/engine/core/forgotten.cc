// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/forgotten.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// While a node is dropped, the names and nodes of so many blocks ahead are read.
constexpr std::size_t kDroppedNamesAhead = 8, kDroppedNodesAhead = 4;

}  // namespace

void Forgotten::forget(Forget&& event) {
  ForgetKeys keys = prefixes_.keys_of(event, std::move(event.keys));
  const auto tokens = std::make_shared<const std::vector<TokenId>>(std::move(event.tokens));
  for (ForgetKeys::Path& names : keys.paths) {
    Path path{.nodes = std::move(names.keys),
              .sequence = tokens,
              .tokens = std::span<const TokenId>(*tokens).subspan(names.tokens_before)};
    if (!recovers_ && try_to_drop(path))
      end(std::move(path));
    else
      wait(event.tenant, std::move(path));
  }
  keep_bounds();
}

void Forgotten::keep_bounds() {
  while (waiting_paths_ > kForgottenMax || waiting_tokens_ > kForgottenTokensMax) {
    Path path = pop(most_waiting());
    const std::size_t left = std::exchange(drops_left_, SIZE_MAX);
    if (recovers_ || is_pinned(path.waits_for) || !try_to_drop(path)) ++given_up_;
    drops_left_ = left;
    end(std::move(path));
  }
}

void Forgotten::end(Path path) { spent_.push_back({std::move(path.sequence), std::move(path.nodes)}); }

// What is dropped of it needs its tokens no more. A path that others keep here may stay long, and is counted
// by what is left: so it holds less than twice that.
void Forgotten::shorten(Path& path) {
  path.tokens = path.tokens.first(std::min(path.tokens.size(), path.nodes.size() * kBlockTokens));
  if (path.waits_for == kNoBlock) return;
  if (path.tokens.size() < path.sequence->size() / 2) {
    auto left = std::make_shared<const std::vector<TokenId>>(path.tokens.begin(), path.tokens.end());
    spent_.push_back({std::exchange(path.sequence, std::move(left)), {}});
    path.tokens = *path.sequence;
  }
  if (path.nodes.size() < path.nodes.capacity() / 2) path.nodes.shrink_to_fit();
}

void Forgotten::wait(const TenantId& tenant, Path path) {
  shorten(path);
  Waiting& waiting = waiting_[tenant];
  waiting.tokens += path.tokens.size();
  waiting_tokens_ += path.tokens.size();
  ++waiting_paths_;
  unfinished_paths_ += path.unfinished ? 1 : 0;
  waiting.paths.push_back(std::move(path));
}

Forgotten::Path Forgotten::pop(Tenants::iterator tenant) {
  Waiting& waiting = tenant->second;
  Path path = std::move(waiting.paths.front());
  waiting.paths.pop_front();
  waiting.tokens -= path.tokens.size();
  waiting_tokens_ -= path.tokens.size();
  --waiting_paths_;
  unfinished_paths_ -= path.unfinished ? 1 : 0;
  if (waiting.paths.empty()) waiting_.erase(tenant);
  return path;
}

Forgotten::Tenants::iterator Forgotten::most_waiting() {
  const bool by_tokens = waiting_tokens_ > kForgottenTokensMax;
  return std::max_element(waiting_.begin(), waiting_.end(), [&](const auto& a, const auto& b) {
    return by_tokens ? a.second.tokens < b.second.tokens : a.second.paths.size() < b.second.paths.size();
  });
}

void Forgotten::retry() {
  std::size_t left = std::min(waiting_paths_, kRetriesMax);
  for (; left > 0 && drops_left_ > 0 && !recovers_; --left) {
    auto next = waiting_.upper_bound(tried_last_);
    if (next == waiting_.end()) next = waiting_.begin();
    if (next == waiting_.end()) break;
    tried_last_ = next->first;
    Path path = pop(next);
    if (is_pinned(path.waits_for) || !try_to_drop(path))
      wait(tried_last_, std::move(path));
    else
      end(std::move(path));
  }
  drops_left_ = kDropsInAStep;
}

// True: nothing is left of it.
bool Forgotten::try_to_drop(Path& path) {
  const Progress progress = drop(path);
  path.unfinished = progress == Progress::kUnfinished;
  if (progress == Progress::kWaits) path.waited = true;
  return progress == Progress::kDone;
}

// (Where the node has gone and another has its place, that one is waited for, too.)
bool Forgotten::is_pinned(BlockId node) const { return node != kNoBlock && index_.block(node).pins > 0; }

Forgotten::Progress Forgotten::wait_for(BlockId node, Path& path) {
  path.waits_for = node;
  return Progress::kWaits;
}

// What is deleted is in no cache.
void Forgotten::read_ahead(const Path& path) const {
  const std::size_t left = path.nodes.size();
  if (left > kDroppedNamesAhead) index_.prefetch(path.nodes[left - 1 - kDroppedNamesAhead]);
  if (left > kDroppedNodesAhead) index_.prefetch(index_.find(path.nodes[left - 1 - kDroppedNodesAhead]));
}

// From the end to the first node that others need.
Forgotten::Progress Forgotten::drop(Path& path) {
  path.waits_for = kNoBlock;
  for (; !path.nodes.empty(); path.nodes.pop_back()) {
    if (drops_left_ == 0) return Progress::kUnfinished;
    read_ahead(path);
    --drops_left_;
    const BlockId node = index_.find(path.nodes.back());
    if (node == kNoBlock) {
      if (path.nodes.size() > 1) forget_shared(path.nodes.back());
      continue;
    }
    const std::size_t begin = (path.nodes.size() - 1) * kBlockTokens;
    const std::span<const TokenId> rest = path.tokens.subspan(begin);
    // (From less than a block other conversations go on too: people begin alike.)
    const bool is_last = rest.size() < kBlockTokens && path.nodes.size() > 1;
    if (is_last) {
      const Progress progress = drop_what_goes_on(node, rest, path);
      if (progress != Progress::kDone) return progress;
    }
    if (drop_tails(node, rest, path) == Progress::kWaits) return Progress::kWaits;
    if (path.nodes.size() == 1) break;  // the root ends by itself
    // (Dropping its last tail may have ended the node.)
    if (index_.find(path.nodes.back()) == kNoBlock) {
      forget_shared(path.nodes.back());
      continue;
    }
    // Who goes on from the end of it may be its own next turn, on its way; elsewhere it is another sequence.
    const Block& block = index_.block(node);
    if (block.pins > 0 && (path.is_whole || block.children == 0)) return wait_for(node, path);
    if (block.children > 0) break;
    forget_shared(path.nodes.back());
    index_.forget(node);
    path.is_whole = false;
  }
  return Progress::kDone;
}

bool Forgotten::still_there(const Below& node) const {
  const Block& block = index_.block(node.id);
  if (node.is_tail) return block.kind == BlockKind::kTail && index_.block(block.parent).key == node.key;
  return block.kind == BlockKind::kFull && block.key == node.key;
}

// `last`: the last whole block of the sequence, which `rest` follows. What goes on from all of it knows all
// of it: turns that were stopped before they were stored, say.
Forgotten::Progress Forgotten::drop_what_goes_on(BlockId last, std::span<const TokenId> rest, Path& path) {
  do {
    if (!path.is_expanded) {
      add_children(last, rest, path.below);
      path.is_expanded = true;
      path.was_cut = path.has_gone = false;
    }
    path.was_cut = !drop_below(path) || path.was_cut;
    if (!path.below.empty()) return Progress::kUnfinished;
    path.is_expanded = false;
    const BlockId met = std::exchange(path.met, kNoBlock);
    if (met != kNoBlock) return wait_for(met, path);
  } while (path.was_cut && path.has_gone);  // what has come since then goes, too
  return Progress::kDone;
}

// False: this step has no more left for it.
bool Forgotten::drop_below(Path& path) {
  for (; path.expanded < path.below.size(); ++path.expanded) {
    if (drops_left_ == 0) return false;
    --drops_left_;
    const Below node = path.below[path.expanded];
    if (still_there(node)) add_children(node.id, {}, path.below);
  }
  for (; !path.below.empty(); path.below.pop_back(), --path.expanded) {  // children before parents
    const Below node = path.below.back();
    if (!still_there(node)) continue;  // it ended with the last of its children
    if (drops_left_ == 0) return false;
    --drops_left_;
    const bool pinned = index_.block(node.id).pins > 0;
    if (pinned) path.met = node.id;
    // The shared store is told at once, and again of what was not given up then.
    if (!node.is_tail && !(pinned && path.waited)) forget_shared(node.key);
    index_.forget(node.id);
    path.has_gone = path.has_gone || !still_there(node);
  }
  return true;
}

// The children that begin with `tokens`, in whatever tier: tails by their state, whole blocks by their names.
// O(log(children) + those).
void Forgotten::add_children(BlockId parent, std::span<const TokenId> tokens, std::vector<Below>& to) const {
  const auto begins_so = [&](BlockId child, std::size_t known) {
    return known >= tokens.size() &&
           std::equal(tokens.begin(), tokens.end(), index_.block(child).tokens.begin());
  };
  const Block& block = index_.block(parent);
  const auto& by_state = block.children_with_state;
  for (auto child = by_state.lower_bound(tokens);
       child != by_state.end() && begins_so(*child, index_.block(*child).filled); ++child) {
    if (index_.block(*child).kind == BlockKind::kTail) to.push_back({*child, block.key, true});
  }
  const auto& by_name = block.full_children;
  for (auto child = by_name.lower_bound(tokens); child != by_name.end() && begins_so(*child, kBlockTokens);
       ++child)
    to.push_back({*child, index_.block(*child).key});
}

// The children that have no name of their own: what was computed of the tokens' next block.
Forgotten::Progress Forgotten::drop_tails(BlockId parent, std::span<const TokenId> tokens, Path& path) {
  const std::size_t longest = std::min<std::size_t>(tokens.size(), kBlockTokens);
  std::vector<BlockId> tails;
  for (std::size_t count = 1; count <= longest; ++count) {
    const auto [begin, end] = index_.block(parent).children_with_state.equal_range(tokens.first(count));
    for (auto child = begin; child != end; ++child) {
      if (index_.block(*child).kind == BlockKind::kTail) tails.push_back(*child);
    }
  }
  // And as slower tiers keep it.
  for (const BlockId partial : index_.partial_beginnings(parent, tokens)) tails.push_back(partial);
  for (const BlockId tail : tails) {
    if (index_.block(tail).pins > 0) return wait_for(tail, path);
    index_.forget(tail);
  }
  return Progress::kDone;
}

void Forgotten::add_stats(CoreStats& stats) const {
  stats.forgets_waiting = waiting_paths_;
  stats.forgets_given_up_total = given_up_;
}

void Forgotten::check_invariants() const {
  std::size_t paths = 0, tokens = 0, unfinished = 0;
  for (const auto& [tenant, waiting] : waiting_) {
    LOCI_CHECK(!waiting.paths.empty(), "invariant 10: no tenant is here without a path");
    std::size_t own = 0;
    for (const Path& path : waiting.paths) {
      check_path(path);
      own += path.tokens.size();
      unfinished += path.unfinished;
    }
    LOCI_CHECK(own == waiting.tokens, "invariant 10: a tenant's tokens are counted");
    paths += waiting.paths.size();
    tokens += own;
  }
  LOCI_CHECK(paths == waiting_paths_ && tokens == waiting_tokens_ && unfinished == unfinished_paths_,
             "invariant 10: what waits is counted");
  LOCI_CHECK(paths <= kForgottenMax && tokens <= kForgottenTokensMax, "invariant 7: what waits is bounded");
  LOCI_CHECK(drops_left_ == kDropsInAStep, "invariant 7: each step has its portion");
  LOCI_CHECK(shares_ || shared_.empty(), "invariant 10: only a store that is there is told");
}

void Forgotten::check_path(const Path& path) const {
  LOCI_CHECK(!path.nodes.empty() && path.tokens.size() <= path.nodes.size() * kBlockTokens,
             "invariant 10: a path has a node to drop, and tokens for its nodes alone");
  LOCI_CHECK(path.waits_for == kNoBlock || (path.sequence->size() / 2 <= path.tokens.size() &&
                                            path.nodes.capacity() / 2 <= path.nodes.size()),
             "invariant 7: what waits for a node holds little more than is counted");
  LOCI_CHECK(!path.unfinished || path.waits_for == kNoBlock,
             "invariant 7: whose turn comes waits for no node");
  LOCI_CHECK(path.is_expanded == !path.below.empty() && path.expanded <= path.below.size(),
             "invariant 10: what was looked up of what continues a path is still to be dropped");
  LOCI_CHECK(!recovers_ || (path.is_whole && !path.unfinished && path.waits_for == kNoBlock),
             "invariant 7: nothing is tried before all earlier entries are known");
}

}  // namespace loci
