#include "loci/memory/block_index.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

std::span<const TokenId> state_tokens(const Block& block) { return {block.tokens.data(), block.filled()}; }

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

}  // namespace

// --- tokens ---

BlockPin::BlockPin(BlockPin&& other) noexcept
    : index_(std::exchange(other.index_, nullptr)), block_(other.block_) {}

BlockPin& BlockPin::operator=(BlockPin&& other) noexcept {
  if (this != &other) {
    release();
    index_ = std::exchange(other.index_, nullptr);
    block_ = other.block_;
  }
  return *this;
}

BlockPin::~BlockPin() { release(); }

void BlockPin::release() {
  if (BlockIndex* index = std::exchange(index_, nullptr)) index->unpin(block_);
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
  if (BlockIndex* index = std::exchange(index_, nullptr)) index->at(block_).device->appending = false;
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

BlockIndex::BlockIndex(SlotPool& pool, std::unique_ptr<EvictionOrder> eviction)
    : pool_(pool), eviction_(std::move(eviction)) {
  by_key_.reserve(pool.count());
}

BlockId BlockIndex::find(const ChainKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? kNoBlock : found->second;
}

bool BlockIndex::can_take_over(BlockId id) const {
  const Block& b = block(id);
  return b.kind == BlockKind::kTail && b.pins == 0 && b.device && !b.device->appending;
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
  if (b.evictable()) eviction_->erase(id, b.facts);
  ++b.pins;
  return BlockPin(this, id);
}

void BlockIndex::unpin(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(b.pins > 0, "a pin was dropped twice");
  if (--b.pins > 0) return;
  LOCI_CHECK(!b.device || !b.device->appending, "an append token must be dropped before its pin");
  b.facts.last_used = now_;
  if (b.device) eviction_->insert(id, b.facts);
  settle(id);
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
  b.facts = EvictionFacts{};
  if (parent != kNoBlock) {
    ++at(parent).children;
    b.facts.depth = at(parent).facts.depth + 1;
  }
  ++live_;
  return id;
}

void BlockIndex::destroy(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(b.pins == 0 && b.children == 0 && !b.device, "only a node that nothing needs ends");
  if (b.kind != BlockKind::kTail) by_key_.erase(b.key);
  if (b.parent != kNoBlock) --at(b.parent).children;
  b.kind = BlockKind::kUnused;
  b.parent = kNoBlock;
  --live_;
  unused_.push_back(id);
}

void BlockIndex::register_key(BlockId id, const ChainKey& key) {
  at(id).key = key;
  const bool fresh = by_key_.emplace(key, id).second;
  LOCI_CHECK(fresh, "a chain key has one node");
}

BlockPin BlockIndex::open_root(const ChainKey& key) {
  if (const BlockId found = find(key); found != kNoBlock) return pin(found);
  const BlockId id = create(BlockKind::kRoot, kNoBlock);
  register_key(id, key);
  return pin(id);
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

// A tail whose state another child has too.
bool BlockIndex::redundant_tail(BlockId id) const {
  const Block& b = block(id);
  if (b.kind != BlockKind::kTail || b.filled() == 0) return false;
  const auto own = state_tokens(b);
  const auto& siblings = block(b.parent).children_with_state;
  const auto place = siblings.find(id);
  if (const auto next = std::next(place); next != siblings.end()) {
    if (common_run(state_tokens(block(*next)), own) == own.size()) return true;
  }
  return place != siblings.begin() && compare(state_tokens(block(*std::prev(place))), own) == 0;
}

// What an unpinned node's copy becomes: nothing if it is empty or redundant; a full node that was left
// half filled and leads nowhere is better found by its tokens.
void BlockIndex::settle_unused_copy(BlockId id) {
  Block& b = at(id);
  if (b.filled() == 0) {
    drop_copy(id);
    return;
  }
  if (b.kind == BlockKind::kFull && b.filled() < kBlockTokens && b.children == 0) {
    by_key_.erase(b.key);
    b.kind = BlockKind::kTail;
  }
  if (redundant_tail(id)) drop_copy(id);
}

// Ends the node, and those above it, if nothing needs them any more.
void BlockIndex::settle(BlockId id) {
  while (id != kNoBlock) {
    Block& b = at(id);
    if (b.pins > 0) return;
    if (b.device) settle_unused_copy(id);
    if (b.device || b.children > 0) return;
    const BlockId parent = b.parent;
    destroy(id);
    id = parent;
  }
}

// --- copies ---

void BlockIndex::drop_copy(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(!b.device->appending, "a copy that someone appends to stays");
  if (b.evictable()) eviction_->erase(id, b.facts);
  if (b.device->filled > 0) at(b.parent).children_with_state.erase(id);
  b.device.reset();
}

bool BlockIndex::place(BlockId id) {
  LOCI_CHECK(at(id).pins > 0 && !at(id).device, "a slot is for a pinned block without copy");
  if (pool_.free_count() == 0) {
    const BlockId victim = eviction_->choose(now_);
    if (victim == kNoBlock) return false;
    LOCI_CHECK(block(victim).evictable(), "a victim that someone needs");
    drop_copy(victim);
    settle(victim);
    ++evictions_;
  }
  std::optional<SlotReservation> slot = pool_.take();
  Block& b = at(id);
  b.device.emplace(DeviceCopy{std::move(*slot)});
  b.facts.born = now_;
  return true;
}

std::optional<AppendToken> BlockIndex::claim(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(b.pins > 0 && b.device, "an append token needs a pinned block with a copy");
  if (b.device->appending) return std::nullopt;
  b.device->appending = true;
  return AppendToken(this, id);
}

void BlockIndex::set_filled(BlockId id, std::uint32_t filled, std::span<const TokenId> tail_tokens) {
  Block& b = at(id);
  auto& order = at(b.parent).children_with_state;
  const auto change = [&] {
    std::copy(tail_tokens.begin(), tail_tokens.end(), b.tokens.begin() + b.device->filled);
    b.device->filled = filled;
  };
  if (b.device->filled == 0) {
    change();
    if (filled > 0) order.insert(id);
  } else if (order.size() == 1 && filled > 0) {
    change();  // an only child keeps its place
  } else {
    auto handle = order.extract(id);
    LOCI_CHECK(!handle.empty(), "a child with state is among its parent's");
    change();
    if (filled > 0) order.insert(std::move(handle));
  }
}

void BlockIndex::fill(const AppendToken& token, std::uint32_t filled) {
  const Block& b = block(token.block());
  LOCI_CHECK(b.kind == BlockKind::kFull && filled <= kBlockTokens, "fill() is for full nodes");
  if (filled > b.filled()) set_filled(token.block(), filled, {});
}

void BlockIndex::append(const AppendToken& token, std::span<const TokenId> tokens) {
  const Block& b = block(token.block());
  LOCI_CHECK(b.kind == BlockKind::kTail && b.filled() + tokens.size() <= kBlockTokens,
             "append() is for tails, up to a block's end");
  if (!tokens.empty()) {
    set_filled(token.block(), b.filled() + static_cast<std::uint32_t>(tokens.size()), tokens);
  }
}

void BlockIndex::truncate(const AppendToken& token, std::uint32_t filled) {
  const Block& b = block(token.block());
  LOCI_CHECK(b.kind == BlockKind::kTail && b.pins == 1 && filled <= b.filled(),
             "only the one user of a tail may shorten it");
  if (filled < b.filled()) set_filled(token.block(), filled, {});
}

// --- changes of kind ---

BlockPin BlockIndex::promote(BlockPin tail, const ChainKey& key, std::span<const TokenId> tokens) {
  Block& b = at(tail.block());
  LOCI_CHECK(b.kind == BlockKind::kTail && b.pins == 1 && b.device && !b.device->appending,
             "only a tail that nobody else uses changes");
  LOCI_CHECK(tokens.size() == kBlockTokens && common_run(state_tokens(b), tokens) == b.filled(),
             "a tail's tokens are the first of what it becomes");
  std::copy(tokens.begin(), tokens.end(), b.tokens.begin());
  b.kind = BlockKind::kFull;
  register_key(tail.block(), key);
  return tail;
}

void BlockIndex::adopt(BlockId hole, BlockPin tail) {
  const BlockId from_id = tail.block();
  Block& to = at(hole);
  Block& from = at(from_id);
  LOCI_CHECK(to.kind == BlockKind::kFull && to.pins > 0 && !to.device, "a copy moves into a pinned hole");
  LOCI_CHECK(from.kind == BlockKind::kTail && from.pins == 1 && from.device && !from.device->appending &&
                 from.parent == to.parent,
             "only the copy of a sibling that nobody else uses moves");
  const std::uint32_t filled = from.device->filled;
  LOCI_CHECK(common_run(state_tokens(from), to.tokens) == filled, "a copy is of the block it moves to");
  set_filled(from_id, 0, {});
  to.device.emplace(std::move(*from.device));
  from.device.reset();
  to.facts.born = from.facts.born;
  if (filled > 0) set_filled(hole, filled, {});
}

Completion BlockIndex::complete(BlockPin tail, AppendToken token, const ChainKey& key) {
  const BlockId id = tail.block();
  Block& b = at(id);
  LOCI_CHECK(token.block() == id && b.kind == BlockKind::kTail && b.filled() == kBlockTokens && b.pins == 1,
             "only a whole tail is completed, by its one user");
  {
    const AppendToken done = std::move(token);
  }
  const BlockId existing_id = find(key);
  if (existing_id == kNoBlock) {
    b.kind = BlockKind::kFull;
    register_key(id, key);
    return {std::move(tail), false};
  }
  BlockPin existing = pin(existing_id);
  Block& e = at(existing_id);
  LOCI_CHECK(e.parent == b.parent && e.tokens == b.tokens, "equal keys, equal tokens");
  if (!e.device) {
    adopt(existing_id, std::move(tail));
    return {std::move(existing), false};
  }
  const bool replace = e.filled() < kBlockTokens;
  if (replace) {
    std::swap(e.device->slot, b.device->slot);
    set_filled(existing_id, kBlockTokens, {});
  }
  drop_copy(id);
  return {std::move(existing), replace};
}

}  // namespace loci
