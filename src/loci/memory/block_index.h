// The index: a trie of blocks that finds what any request shares with anything seen before.
//
// A *full* node has a chain key and the tokens of a whole block; its copy may still be filling. A *tail*
// has no key: a partially filled leaf whose tokens are those that its copy holds. A full node without a
// copy is a *hole*; it stays while it is pinned or a descendant has state. So a node that is absent has
// no descendants, and a lookup that probes block by block until the first absent one has seen all that
// there is, holes or not. Roots have no tokens and no copies.
//
// Children with state are ordered by the tokens whose state they hold, so the longest run that any child
// shares with a text is found next to the text's own place in that order.
//
// A copy is filled from the left. Only who holds its move-only AppendToken writes past what is filled;
// tokens below that never change while the block is pinned, so whoever has a pin may read them.
//
// Invariants (numbered as in the design; check_invariants() tests each):
//   1. Each slot is free or belongs to exactly one copy.
//   2. What is pinned is not in the eviction order; every copy that nobody pins is.
//   4. A node's key is that of its parent's key and its tokens (tested by the core, which has the
//      hasher); keys are unique; a tail's tokens are as many as its copy's filled tokens.
//   6. A node without copy, pin or children does not exist. A leaf that nobody pins has state.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/compute/backend.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/eviction_order.h"
#include "loci/memory/slot_pool.h"

namespace loci {

class BlockIndex;

// Keeps a node, and its copy if it has one, where they are. Move-only; dropping it lets go.
class BlockPin {
 public:
  BlockPin(BlockPin&& other) noexcept;
  BlockPin& operator=(BlockPin&& other) noexcept;
  BlockPin(const BlockPin&) = delete;
  BlockPin& operator=(const BlockPin&) = delete;
  ~BlockPin();
  BlockId block() const { return block_; }

 private:
  friend class BlockIndex;
  BlockPin(BlockIndex* index, BlockId block) : index_(index), block_(block) {}
  void release();
  BlockIndex* index_;  // null: moved from
  BlockId block_;
};

// The right to write past a copy's fill. Move-only; dropping it gives the right back. Its holder also
// holds a pin.
class AppendToken {
 public:
  AppendToken(AppendToken&& other) noexcept;
  AppendToken& operator=(AppendToken&& other) noexcept;
  AppendToken(const AppendToken&) = delete;
  AppendToken& operator=(const AppendToken&) = delete;
  ~AppendToken();
  BlockId block() const { return block_; }

 private:
  friend class BlockIndex;
  AppendToken(BlockIndex* index, BlockId block) : index_(index), block_(block) {}
  void release();
  BlockIndex* index_;  // null: moved from
  BlockId block_;
};

// A copy in device memory. (Copies in other tiers become further members of Block.)
struct DeviceCopy {
  SlotReservation slot;
  std::uint32_t filled = 0;  // tokens from the block's begin whose state is there
  bool appending = false;    // someone holds the append token
};

// Orders children by the tokens whose state they hold, equal ones by id.
class ChildOrder {
 public:
  using is_transparent = void;
  explicit ChildOrder(const BlockIndex* index) : index_(index) {}
  bool operator()(BlockId a, BlockId b) const;
  bool operator()(BlockId a, std::span<const TokenId> b) const;
  bool operator()(std::span<const TokenId> a, BlockId b) const;

 private:
  const BlockIndex* index_;
};

enum class BlockKind : std::uint8_t { kUnused, kRoot, kFull, kTail };

struct Block {
  explicit Block(const BlockIndex* index) : children_with_state(ChildOrder(index)) {}

  BlockKind kind = BlockKind::kUnused;
  ChainKey key;  // roots and full nodes
  BlockId parent = kNoBlock;
  std::array<TokenId, kBlockTokens> tokens{};  // full: all; tail: the first device->filled
  std::uint32_t pins = 0;
  std::uint32_t children = 0;  // of any kind
  std::set<BlockId, ChildOrder> children_with_state;
  std::optional<DeviceCopy> device;
  EvictionFacts facts;

  std::uint32_t filled() const { return device ? device->filled : 0; }
  // Nobody needs it.
  bool evictable() const { return device && pins == 0; }
};

struct ChildMatch {
  BlockId child = kNoBlock;
  std::uint32_t run = 0;  // tokens from the begin that are common and have state
};

struct Completion {
  BlockPin pin;                // of the full node
  bool slot_replaced = false;  // the full node was there, incomplete, and now has another slot
};

// Thread-compatible. `pool` must outlive it; it must outlive its pins and tokens.
class BlockIndex {
 public:
  BlockIndex(SlotPool& pool, std::unique_ptr<EvictionOrder> eviction);
  BlockIndex(const BlockIndex&) = delete;
  BlockIndex& operator=(const BlockIndex&) = delete;

  // The time that uses from now on are recorded with.
  void advance(Nanos now) { now_ = now; }

  // --- looking ---

  const Block& block(BlockId id) const { return blocks_[id.value]; }
  // The root or full node of that key, or kNoBlock. O(1).
  BlockId find(const ChainKey& key) const;
  // The child of `parent` whose state has the longest run in common with `tokens`; among equals a tail
  // that may be taken over (can_take_over), whose every token is in the run. O(log children).
  ChildMatch match_children(BlockId parent, std::span<const TokenId> tokens) const;
  // A tail that nobody uses: its next user may append to it instead of copying it.
  bool can_take_over(BlockId id) const;
  // Slots that are free or can be freed.
  std::uint32_t available() const {
    return pool_.free_count() + static_cast<std::uint32_t>(eviction_->size());
  }
  std::uint32_t evictable_count() const { return static_cast<std::uint32_t>(eviction_->size()); }
  std::uint64_t evictions() const { return evictions_; }
  std::uint32_t block_count() const { return live_; }
  // Ids are below it.
  std::uint32_t id_bound() const { return static_cast<std::uint32_t>(blocks_.size()); }

  // --- pins and nodes ---

  BlockPin pin(BlockId id);
  // Found or made.
  BlockPin open_root(const ChainKey& key);
  BlockPin open_full(BlockId parent, const ChainKey& key, std::span<const TokenId> tokens);
  // A new tail, empty.
  BlockPin open_tail(BlockId parent);

  // --- copies ---

  // Gives a pinned block without copy an empty one; evicts for it where no slot is free. False: all
  // slots hold what is pinned.
  bool place(BlockId id);
  // Absent: someone else has it. The block is pinned and has a copy.
  std::optional<AppendToken> claim(BlockId id);
  // A full node's copy holds at least the first `filled` tokens.
  void fill(const AppendToken& token, std::uint32_t filled);
  // A tail's copy got the state of these tokens.
  void append(const AppendToken& token, std::span<const TokenId> tokens);
  // A tail forgets what is past `filled`. Nobody else has a pin.
  void truncate(const AppendToken& token, std::uint32_t filled);

  // --- changes of kind ---

  // A tail that can be taken over (and that only `tail` pins) becomes the full node of `key`, whose
  // tokens begin with its own. Nothing with that key exists.
  BlockPin promote(BlockPin tail, const ChainKey& key, std::span<const TokenId> tokens);
  // The same where the full node exists as a hole: it gets the tail's copy. Consumes the tail.
  void adopt(BlockId hole, BlockPin tail);
  // A tail with kBlockTokens tokens becomes the full node of `key`; where one with whole state exists
  // already the tail's copy is dropped, as it has the same bits.
  Completion complete(BlockPin tail, AppendToken token, const ChainKey& key);

  // Aborts on a broken invariant. O(nodes · log).
  void check_invariants() const;

 private:
  friend class BlockPin;
  friend class AppendToken;

  Block& at(BlockId id) { return blocks_[id.value]; }
  BlockId create(BlockKind kind, BlockId parent);
  void destroy(BlockId id);
  void unpin(BlockId id);
  void settle(BlockId id);
  void settle_unused_copy(BlockId id);
  bool redundant_tail(BlockId id) const;
  void drop_copy(BlockId id);
  void set_filled(BlockId id, std::uint32_t filled, std::span<const TokenId> tail_tokens);
  void register_key(BlockId id, const ChainKey& key);
  void check_block(BlockId id) const;

  SlotPool& pool_;
  std::unique_ptr<EvictionOrder> eviction_;
  std::deque<Block> blocks_;  // by id; deque: addresses are stable
  std::vector<BlockId> unused_;
  std::unordered_map<ChainKey, BlockId, ChainKeyHash> by_key_;  // never iterated
  Nanos now_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t evictions_ = 0;
};

}  // namespace loci
