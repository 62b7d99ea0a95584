// SPDX-License-Identifier: Apache-2.0
// The index's full nodes by their names: by key, and among siblings by their tokens.
#include <algorithm>
#include <iterator>

#include "loci/base/check.h"
#include "loci/memory/block_index.h"

namespace loci {
namespace {

// Children beside a text's place that are asked for their state, to either side.
constexpr int kNamesLookedAt = 4;

std::strong_ordering compare_names(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
}

std::uint32_t tokens_in_common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::uint32_t>(std::distance(a.begin(), std::ranges::mismatch(a, b).in1));
}

}  // namespace

bool NameOrder::operator()(BlockId a, BlockId b) const {
  return compare_names(index_->block(a).tokens, index_->block(b).tokens) < 0;
}

bool NameOrder::operator()(BlockId a, std::span<const TokenId> b) const {
  return compare_names(index_->block(a).tokens, b) < 0;
}

bool NameOrder::operator()(std::span<const TokenId> a, BlockId b) const {
  return compare_names(a, index_->block(b).tokens) < 0;
}

void BlockIndex::register_key(BlockId id, const ChainKey& key) {
  at(id).key = key;
  ++names_made_;
  bool fresh = by_key_.insert(key, id);
  if (at(id).kind == BlockKind::kFull) {
    Block& parent = at(at(id).parent);
    ++full_count_;
    if (parent.kind != BlockKind::kFull || !parent.full_children.empty()) ++end_count_;
    fresh = parent.full_children.insert(id) && fresh;
    parent.partial_children += is_partial(at(id).tokens) ? 1 : 0;
  }
  LOCI_CHECK(fresh, "a chain key has one node");
  noted_.note(id);
}

void BlockIndex::unregister_key(BlockId id) {
  note_nameless(id);
  const Block& b = block(id);
  by_key_.erase(b.key);
  if (b.kind != BlockKind::kFull) return;
  Block& parent = at(b.parent);
  parent.full_children.erase(id);
  --full_count_;
  if (parent.kind != BlockKind::kFull || !parent.full_children.empty()) --end_count_;
  parent.partial_children -= is_partial(b.tokens) ? 1 : 0;
}

ChildMatch BlockIndex::match_names(BlockId parent, std::span<const TokenId> tokens,
                                   const std::function<bool(BlockId)>& serves) const {
  const auto& children = block(parent).full_children;
  // Runs get shorter with the distance from the place that the tokens would have.
  const auto place = children.upper_bound(tokens);
  ChildMatch best;
  const auto consider = [&](BlockId id) {
    const std::uint32_t run = tokens_in_common(block(id).tokens, tokens);
    if (run <= best.run) return false;
    if (!serves(id)) return true;
    best = {id, run};
    return false;
  };
  auto after = place;
  for (int i = 0; i < kNamesLookedAt && after != children.end() && consider(*after); ++i) ++after;
  auto before = place;
  for (int i = 0; i < kNamesLookedAt && before != children.begin() && consider(*--before); ++i) continue;
  return best;
}

std::vector<BlockId> BlockIndex::partial_beginnings(BlockId parent, std::span<const TokenId> tokens) const {
  std::vector<BlockId> found;
  const Block& b = block(parent);
  if (b.partial_children == 0) return found;
  const std::size_t most = std::min<std::size_t>(tokens.size(), kBlockTokens - 1);
  for (std::size_t count = 1; count <= most; ++count) {
    const BlockTokens name = partial_tokens(tokens.first(count));
    const auto child = b.full_children.find(std::span<const TokenId>(name));
    if (child != b.full_children.end()) found.push_back(*child);
  }
  return found;
}

}  // namespace loci
