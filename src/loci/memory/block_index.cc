// SPDX-License-Identifier: Apache-2.0
// How nodes come, become holes and go (block_index.h has the terms and the rules). An example, of blocks of
// four tokens and one group. Two conversations begin alike; a number is the slot of a part:
//
//     root - abcd 0 - efgh 1       Memory is short, and nobody holds abcd: its part goes. The node stays as
//                   - xyzw 2       a hole: state below it would not be found without it.
//
//     root - abcd . - efgh 1       "abcdefgh..." is looked up: abcd has no state, efgh has. The request
//                   - xyzw 2       computes four tokens, into a new part of abcd, and takes efgh as it is.
//
//     root - abcd 3 - efgh 1       Now the leaves go first. Nothing is below them, so their nodes go with
//                   - xyzw 2       their parts. Were abcd a hole still, it would go with the last of them.
//
// With a copy of efgh on the disk its node stays too, without a part, and so does every node above it.
#include "loci/memory/block_index.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

std::span<const TokenId> state_tokens(const Block& block) { return {block.tokens.data(), block.filled}; }

std::strong_ordering compare(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
}

std::uint32_t common_run(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t end = std::min(a.size(), b.size());
  std::size_t run = 0;
  while (run < end && a[run] == b[run]) ++run;
  return static_cast<std::uint32_t>(run);
}

// Tails with equal tokens are looked through this far for one that nobody uses.
constexpr int kEqualTailsLookedAt = 8;
constexpr std::size_t kLostBlocksKept = std::size_t{1} << 17;

}  // namespace

// --- tokens ---

BlockPin::BlockPin(BlockPin&& other) noexcept
    : index_(std::exchange(other.index_, nullptr)),
      block_(other.block_),
      held_(std::exchange(other.held_, {})) {}

BlockPin& BlockPin::operator=(BlockPin&& other) noexcept {
  if (this != &other) {
    release();
    index_ = std::exchange(other.index_, nullptr);
    block_ = other.block_;
    held_ = std::exchange(other.held_, {});
  }
  return *this;
}

BlockPin::~BlockPin() { release(); }

void BlockPin::release() {
  if (BlockIndex* index = std::exchange(index_, nullptr)) index->unpin(*this);
}

AppendToken::AppendToken(AppendToken&& other) noexcept
    : index_(std::exchange(other.index_, nullptr)), block_(other.block_) {}

AppendToken& AppendToken::operator=(AppendToken&& other) noexcept {
  if (this != &other) {
    release();
    index_ = std::exchange(other.index_, nullptr);
    block_ = other.block_;
  }
  return *this;
}

AppendToken::~AppendToken() { release(); }

void AppendToken::release() {
  if (BlockIndex* index = std::exchange(index_, nullptr)) index->at(block_).appending = false;
}

// --- order of children ---

bool ChildOrder::operator()(BlockId a, BlockId b) const {
  const auto order = compare(state_tokens(index_->block(a)), state_tokens(index_->block(b)));
  return order != 0 ? order < 0 : a < b;
}

bool ChildOrder::operator()(BlockId a, std::span<const TokenId> b) const {
  return compare(state_tokens(index_->block(a)), b) < 0;
}

bool ChildOrder::operator()(std::span<const TokenId> a, BlockId b) const {
  return compare(a, state_tokens(index_->block(b))) < 0;
}

// --- looking ---

BlockIndex::BlockIndex(IndexPools pools)
    : group_count_(static_cast<std::uint32_t>(pools.device.size())),
      holes_(pools.hole_records),
      lost_(kLostBlocksKept),
      date_granularity_(pools.date_granularity) {
  LOCI_CHECK(!pools.device.empty() && pools.device.size() <= kLayerGroupsMax, "a pool for every group");
  std::size_t tier = 0;
  for (std::vector<IndexPool>* groups : {&pools.device, &pools.host, &pools.disk, &pools.shared}) {
    const bool both_forms = groups == &pools.disk && groups->size() == 2 * pools.device.size();
    LOCI_CHECK(groups->empty() || groups->size() == pools.device.size() || both_forms,
               "a tier has a pool for every group");
    for (IndexPool& pool : *groups) tiers_[tier].emplace_back(std::move(pool));
    for (std::size_t group = 0; both_forms && group < pools.device.size(); ++group) {
      Pool &kv = tiers_[tier][group], &hidden = tiers_[tier][pools.device.size() + group];
      LOCI_CHECK(kv.eviction != nullptr && hidden.eviction == nullptr, "both forms are in one order");
      kv.other = &hidden;
      hidden.other = &kv;
    }
    ++tier;
  }
  saves_tails_ = std::ranges::all_of(device(), [](const Pool& pool) { return pool.unsaved != nullptr; });
  by_key_.reserve(slot_count(0));
  blocks_.reserve(slot_count(0));
}

bool BlockIndex::can_take_over(BlockId id) const {
  const Block& b = block(id);
  return b.kind == BlockKind::kTail && b.pins == 0 && b.filled > 0;
}

ChildMatch BlockIndex::match_children(BlockId parent, std::span<const TokenId> tokens) const {
  const auto& children = block(parent).children_with_state;
  // The longest common run is with a neighbour of the place that the tokens would have.
  const auto after = children.upper_bound(tokens);
  ChildMatch best;
  if (after != children.end()) best = {*after, common_run(state_tokens(block(*after)), tokens)};
  if (after != children.begin()) {
    const BlockId before = *std::prev(after);
    const std::uint32_t run = common_run(state_tokens(block(before)), tokens);
    if (run >= best.run) best = {before, run};
  }
  if (best.run == 0) return {};
  const auto run_tokens = tokens.first(best.run);
  auto equal = children.lower_bound(run_tokens);
  for (int i = 0; i < kEqualTailsLookedAt && equal != children.end(); ++i, ++equal) {
    if (compare(state_tokens(block(*equal)), run_tokens) != 0) break;
    if (can_take_over(*equal)) return {*equal, best.run};
  }
  return best;
}

// --- pins and nodes ---

BlockPin BlockIndex::pin(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(b.kind != BlockKind::kUnused, "a pin needs a node");
  ++b.pins;
  return BlockPin(this, id);
}

void BlockIndex::hold(BlockPin& pin, std::uint32_t group) {
  std::optional<DevicePart>& part = at(pin.block_).parts[group];
  LOCI_CHECK(part && !pin.held_[group], "a pin holds a part that is there, once");
  if (part->evictable()) delist(pin.block_, Tier::kDevice, group, part->facts);
  ++part->holds;
  pin.held_[group] = true;
}

void BlockIndex::hold_all(BlockPin& pin) {
  for (std::uint32_t group = 0; group < group_count(); ++group) hold(pin, group);
}

void BlockIndex::let_go(BlockPin& pin, std::uint32_t group, Release release) {
  LOCI_CHECK(pin.held_[group], "only what is held is let go");
  pin.held_[group] = false;
  DevicePart& part = *at(pin.block_).parts[group];
  LOCI_CHECK(part.holds > 0, "a part was let go twice");
  const bool used = release != Release::kUnused;
  if (used) {
    part.facts.last_used = now_;
    part.facts.behind_window = release == Release::kBehindWindow;
  }
  if (--part.holds == 0) enlist(pin.block_, Tier::kDevice, group, part.facts);
  if (used && !block(pin.block_).copies.empty()) {
    use_copies(pin.block_, group);
  }
}

void BlockIndex::unpin(BlockPin& pin) {
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (pin.held_[group]) let_go(pin, group, Release::kWanted);
  }
  Block& b = at(pin.block_);
  LOCI_CHECK(b.pins > 0, "a pin was dropped twice");
  if (--b.pins > 0) return;
  LOCI_CHECK(!b.appending, "an append token must be dropped before its pin");
  settle(pin.block_);
}

BlockId BlockIndex::create(BlockKind kind, BlockId parent) {
  BlockId id;
  if (unused_.empty()) {
    id = BlockId(static_cast<std::uint32_t>(blocks_.size()));
    blocks_.emplace_back(this);
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  Block& b = at(id);
  b.kind = kind;
  b.parent = parent;
  b.depth = 0;
  if (parent != kNoBlock) {
    ++at(parent).children;
    b.depth = at(parent).depth + 1;
  }
  ++live_;
  return id;
}

void BlockIndex::destroy(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(b.pins == 0 && b.children == 0 && !b.has_part() && b.copies.empty() && !b.on_disk,
             "only a node that nothing needs ends");
  if (b.kind != BlockKind::kTail) unregister_key(id);
  if (b.kind == BlockKind::kFull && b.lost != MissReason::kNeverSeen) lost_.add(b.key, b.lost);
  b.lost = MissReason::kNeverSeen;
  b.wanted = kNotWanted;
  b.end_settled = false;
  if (b.parent != kNoBlock) --at(b.parent).children;
  b.kind = BlockKind::kUnused;
  b.parent = kNoBlock;
  --live_;
  unused_.push_back(id);
}

BlockPin BlockIndex::open_root(const ChainKey& key) {
  if (const BlockId found = find(key); found != kNoBlock) return pin(found);
  const BlockId id = create(BlockKind::kRoot, kNoBlock);
  register_key(id, key);
  return pin(id);
}

BlockPin BlockIndex::open_gate(BlockId parent, const ChainKey& key) {
  if (const BlockId found = find(key); found != kNoBlock) return pin(found);
  const BlockId id = create(BlockKind::kRoot, parent);
  --at(id).depth;
  register_key(id, key);
  return pin(id);
}

void BlockIndex::publish(const BlockPin& pin) {
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    LOCI_CHECK(pin.held_[group], "what is public stays");
  }
  ++at(pin.block_).published;
}

void BlockIndex::withdraw(const BlockPin& pin) {
  LOCI_CHECK(at(pin.block_).published > 0, "only what is public is withdrawn");
  --at(pin.block_).published;
}

BlockPin BlockIndex::open_full(BlockId parent, const ChainKey& key, std::span<const TokenId> tokens) {
  if (const BlockId found = find(key); found != kNoBlock) return pin(found);
  LOCI_CHECK(tokens.size() == kBlockTokens, "a full node has a whole block's tokens");
  const BlockId id = create(BlockKind::kFull, parent);
  std::copy(tokens.begin(), tokens.end(), at(id).tokens.begin());
  register_key(id, key);
  return pin(id);
}

BlockPin BlockIndex::open_tail(BlockId parent) { return pin(create(BlockKind::kTail, parent)); }

BlockId BlockIndex::same_beginning(BlockId tail) const {
  const Block& b = block(tail);
  if (b.kind != BlockKind::kTail || b.filled == 0) return kNoBlock;
  const auto own = state_tokens(b);
  const auto& siblings = block(b.parent).children_with_state;
  const auto place = siblings.find(tail);
  if (const auto next = std::next(place); next != siblings.end()) {
    if (common_run(state_tokens(block(*next)), own) == own.size()) return *next;
  }
  if (place == siblings.begin()) return kNoBlock;
  const BlockId before = *std::prev(place);
  return compare(state_tokens(block(before)), own) == 0 ? before : kNoBlock;
}

// What an unpinned node's parts become: empty ones are dropped, and all of a leaf that lacks one in every
// tier; a full node that was left half filled and leads nowhere is better found by its tokens.
void BlockIndex::settle_unused_parts(BlockId id) {
  Block& b = at(id);
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (!b.parts.has(group)) continue;
    const std::uint32_t filled = b.parts[group]->filled;
    // What is begun is of no use beside a whole copy.
    if (filled == 0 || (filled < kBlockTokens && b.whole_copy(group) != nullptr)) drop_part(id, group);
  }
  if (b.children > 0 || (b.kind == BlockKind::kFull && reachable(id))) return;
  drop_copies(id, b.lost);
  if (b.filled == 0) {
    drop_parts(id);
    return;
  }
  if (b.kind == BlockKind::kFull && b.filled < kBlockTokens) {
    unregister_key(id);
    for (std::uint32_t group = 0; group < group_count(); ++group) {
      delist(id, Tier::kDevice, group, b.parts[group]->facts);
    }
    b.kind = BlockKind::kTail;
    b.wanted = kNotWanted;  // nobody finds it by its key any more
    for (std::uint32_t group = 0; group < group_count(); ++group) {
      b.parts[group]->filled = b.filled;
      b.parts[group]->facts.wanted = kNotWanted;
      enlist(id, Tier::kDevice, group, b.parts[group]->facts);
    }
  }
  if (same_beginning(id) != kNoBlock) drop_parts(id);
}

// Ends the node, and those above it, if nothing needs them any more.
void BlockIndex::settle(BlockId id) {
  while (id != kNoBlock) {
    Block& b = at(id);
    if (b.pins > 0) return;
    if (b.has_part() || !b.copies.empty()) settle_unused_parts(id);
    if (b.has_part() || !b.copies.empty() || b.children > 0) return;
    const BlockId parent = b.parent;
    destroy(id);
    id = parent;
  }
}

// --- changes of kind ---

BlockPin BlockIndex::promote(BlockPin tail, const ChainKey& key, std::span<const TokenId> tokens) {
  Block& b = at(tail.block());
  LOCI_CHECK(b.kind == BlockKind::kTail && b.pins == 1 && b.filled > 0 && !b.appending,
             "only a tail that nobody else uses changes");
  LOCI_CHECK(tokens.size() == kBlockTokens && common_run(state_tokens(b), tokens) == b.filled,
             "a tail's tokens are the first of what it becomes");
  std::copy(tokens.begin(), tokens.end(), b.tokens.begin());
  b.kind = BlockKind::kFull;
  b.end_settled = false;
  register_key(tail.block(), key);
  return tail;
}

void BlockIndex::adopt(BlockPin& hole, BlockPin tail) {
  Block& to = at(hole.block());
  Block& from = at(tail.block());
  LOCI_CHECK(to.kind == BlockKind::kFull && !to.has_part(), "parts move into a pinned hole");
  LOCI_CHECK(from.kind == BlockKind::kTail && from.pins == 1 && from.filled > 0 && !from.appending &&
                 from.parent == to.parent,
             "only the parts of a sibling that nobody else uses move");
  const std::uint32_t filled = from.filled;
  LOCI_CHECK(common_run(state_tokens(from), to.tokens) == filled, "parts are of the block they move to");
  set_filled(tail.block(), 0, {});
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    LOCI_CHECK(tail.held_[group], "the tail's pin holds what moves");
    to.parts[group].emplace(std::move(*from.parts[group]));
    to.parts[group]->facts.wanted = to.wanted_in(group);
    from.parts[group].reset();
  }
  hole.held_ = std::exchange(tail.held_, {});
  set_filled(hole.block(), filled, {});
  noted_.note(hole.block());
}

Completion BlockIndex::complete(BlockPin tail, AppendToken token, const ChainKey& key) {
  const BlockId id = tail.block();
  Block& b = at(id);
  LOCI_CHECK(token.block() == id && b.kind == BlockKind::kTail && b.filled == kBlockTokens && b.pins == 1,
             "only a whole tail is completed, by its one user");
  {
    const AppendToken done = std::move(token);
  }
  const BlockId existing_id = find(key);
  if (existing_id == kNoBlock) {
    b.kind = BlockKind::kFull;
    b.end_settled = false;
    register_key(id, key);
    return {std::move(tail), {}, {}};
  }
  Completion result{pin(existing_id), {}, {}};
  Block& e = at(existing_id);
  LOCI_CHECK(e.parent == b.parent && e.tokens == b.tokens, "equal keys, equal tokens");
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (!e.parts[group]) {
      e.parts[group].emplace(std::move(*b.parts[group]));
      e.parts[group]->facts.wanted = e.wanted_in(group);
      b.parts[group].reset();
      result.pin.held_[group] = true;
      tail.held_[group] = false;
      continue;
    }
    hold(result.pin, group);
    if (e.parts[group]->filled < kBlockTokens) {
      std::swap(e.parts[group]->slot, b.parts[group]->slot);
      e.parts[group]->filled = kBlockTokens;
      result.replaced[group].emplace(std::move(b.parts[group]->slot));
    } else {
      result.dropped[group].emplace(std::move(b.parts[group]->slot));
    }
  }
  discard_parts(tail);
  if (e.filled < kBlockTokens) set_filled(existing_id, kBlockTokens, {});
  noted_.note(existing_id);
  return result;
}

}  // namespace loci
