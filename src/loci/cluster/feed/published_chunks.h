// SPDX-License-Identifier: Apache-2.0
// The chunks of prompts' text that an instance publishes: the block of each, the tier of each block, and the
// changes of both as numbered events. BlockFeed (block_feed.h) says what they are for.
//
// The rules:
//   - A chunk keeps the block that it has while that block is anywhere, as a later prompt with the same
//     beginning divides its tokens a little differently. The end of a conversation moves on at once.
//   - A change of a chunk's tier is an event with the next number. The last `events_kept` are kept.
//   - A block has at most `of_block_max` chunks: the one that came to it first goes. So text of which no
//     token is computed names nothing, and a block that moves tells few events.
//   - At most `chunks_max` chunks are published. Beyond, the tenant that has the most of them gives the one
//     whose prompt came longest ago. So nobody loses a share to a tenant that has more.
//   - The places of all blocks of the index are known, because texts may come later than their blocks.
//   - name() and move() take what memory they need first. Without it they throw std::bad_alloc, and can be
//     called again; name() may have made room by then.
//
// Invariants, which check_invariants() tests:
//   1. The published tier of a chunk is that of its block.
//   2. A block's list has exactly the chunks that name the block, and no more than it may have.
//   3. A tenant's list has exactly its chunks.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/cluster/feed/feed_wire.h"
#include "loci/memory/block_place.h"
#include "loci/memory/chain_key.h"

namespace loci {

struct PublishedChunksOptions {
  std::uint32_t chunks_max = kFeedChunksMax;
  std::uint32_t of_block_max = 8;
  std::uint32_t events_kept = 1 << 16;
};

class PublishedChunks {
 public:
  enum class Keep : std::uint8_t { kWhatIsThere, kNothing };

  explicit PublishedChunks(const PublishedChunksOptions& options);

  // The chunk's state is the block's. O(log tenants) if it is new, else O(1).
  void name(std::uint64_t chunk, const ChainKey& block, std::uint64_t tenant, Keep keep);
  // O(1).
  void move(const BlockPlace& moved);

  std::uint32_t size() const { return static_cast<std::uint32_t>(chunk_of_.size()); }
  // The number of the last event; 0: there was none.
  std::uint64_t last() const { return last_; }
  // Whether all events after that number are known.
  bool knows_after(std::uint64_t number) const { return number <= last_ && number >= last_ - events_.size(); }
  // The events after a number after which all are known, at most `most`.
  std::vector<FeedEntry> after(std::uint64_t number, std::size_t most) const;
  // Those from a place on whose state is somewhere, at most kFeedEntriesMax. Returns the place to go on from;
  // 0: that was all. Looks at a bounded number of places.
  std::uint32_t page(std::uint32_t place, std::vector<FeedEntry>& out) const;

  // Aborts on a broken invariant. O(all).
  void check_invariants() const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Chunk {
    std::uint64_t name = 0;  // 0: the place is free
    std::uint64_t tenant = 0;
    ChainKey block;
    std::optional<Tier> told;
    std::uint32_t older = kNone, younger = kNone;  // of the same tenant, by their prompts' arrival
    std::uint32_t before = kNone, after = kNone;   // of the same block, from the one that came last
  };
  struct Place {
    std::optional<Tier> tier;  // absent: only chunks are waiting for it
    std::uint32_t first = kNone;
    std::uint32_t count = 0;  // of its chunks
  };
  struct Tenant {
    std::uint32_t oldest = kNone, youngest = kNone;
    std::uint32_t count = 0;
  };

  // So that the new chunk's name, block and tenant are known; or none of it.
  void take_memory_for(std::uint64_t name, std::uint32_t at, const ChainKey& block, std::uint64_t tenant);
  void drop(std::uint32_t at);
  void make_room_at(const ChainKey& block);
  void attach(std::uint32_t at, const ChainKey& block);
  void detach(std::uint32_t at);
  void link_youngest(Tenant& tenant, std::uint32_t at);
  void unlink(Tenant& tenant, std::uint32_t at);
  void count_tenant(std::uint64_t tenant, std::uint32_t before, std::uint32_t now);
  void tell(std::uint32_t at, std::optional<Tier> tier);
  std::optional<Tier> tier_of(const ChainKey& block) const;

  const PublishedChunksOptions options_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::uint64_t, std::uint32_t> chunk_of_;  // by name
  std::unordered_map<ChainKey, Place, ChainKeyHash> places_;
  std::unordered_map<std::uint64_t, Tenant> tenants_;                // that have chunks
  std::set<std::pair<std::uint32_t, std::uint64_t>> tenants_ranks_;  // by their counts
  std::vector<FeedEntry> events_;                                    // number n at (n - 1) % events_kept
  std::uint64_t last_ = 0;
};

}  // namespace loci
