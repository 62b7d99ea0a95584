// SPDX-License-Identifier: Apache-2.0
// What an instance publishes about its state: for each chunk of a prompt's text the tier of the block that
// ends about there, as numbered changes and as pages of everything (feed_wire.h).
//
// Text has names that fronts can make of a request too (cluster/routed_request.h); blocks have chain keys,
// which nobody without the model can make. The two meet when a request has come and its tokens are known: of
// n chunks and m tokens the chunk i is taken to end at the token m * (i + 1) / n. An example, a prompt of
// five chunks and three whole blocks:
//
//     text    |  t1  |  t2  |  t3  |  t4  |  t5  |       t1 and t2 are published as being where b1 is,
//     tokens  |    b1    |    b2    |    b3   |..        t3 and t4 where b2 is, t5 where b3 is.
//
// The end by which a conversation or response is continued has a name too; it is where the prompt's last
// whole block is. Such a name is needed because later requests do not contain the earlier text.
//
// The rules:
//   - A chunk keeps the block that it has while that block is anywhere, as a later prompt with the same
//     beginning divides its tokens a little differently. The end of a conversation moves on at once.
//   - A change of a chunk's tier is an event with the next number. The last
//     `BlockFeedOptions::events_kept` are kept; a front that asks for older ones must read pages instead.
//   - At most kFeedChunksMax chunks are published; the one whose prompt came longest ago goes first, of one
//     prompt the end first.
//   - The places of all blocks of the index are known, because texts may come later than their blocks.
//
// Invariants, which check_invariants() tests:
//   1. The published tier of a chunk is that of its block.
//   2. A block's list has exactly the chunks that name the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/cluster/feed/feed_wire.h"
#include "loci/engine/run/block_listener.h"
#include "loci/memory/chain_key.h"

namespace loci {

struct BlockFeedOptions {
  std::uint64_t epoch = 1;  // not 0, and another one at each start
  // Of a block, in all groups of layers.
  std::uint64_t block_bytes = 0;
  std::uint32_t chunks_max = kFeedChunksMax;
  std::uint32_t events_kept = 1 << 16;
};

struct BlockFeedStats {
  std::uint64_t changes_total = 0;
  std::uint64_t gaps_total = 0;
  std::uint32_t chunks = 0;  // that are known, wherever their blocks are
};

// Thread-safe. A call costs O(what it is given, or gives). It holds the one mutex in steps of at most 256
// chunks or blocks (with all chunks of a block), or for one reply; a page looks at 16,384 places of chunks at
// most.
class BlockFeed final : public BlockListener {
 public:
  explicit BlockFeed(const BlockFeedOptions& options);

  void prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) override
      EXCLUDES(mutex_);
  void moved(std::span<const BlockPlace> places) override EXCLUDES(mutex_);
  void costs(const CostCurves& curves) override EXCLUDES(mutex_);

  FeedChanges changes(const FeedQuestion& question) EXCLUDES(mutex_);
  FeedPage page(const FeedPageQuestion& question) const EXCLUDES(mutex_);
  BlockFeedStats stats() const EXCLUDES(mutex_);
  // Aborts on a broken invariant. O(all).
  void check_invariants() const EXCLUDES(mutex_);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Chunk {
    std::uint64_t name = 0;  // 0: the place is free
    ChainKey block;
    std::optional<Tier> told;
    std::uint32_t older = kNone, younger = kNone;  // by their prompts' arrival
    std::uint32_t before = kNone, after = kNone;   // of the same block
  };
  struct Place {
    std::optional<Tier> tier;     // absent: only chunks are waiting for it
    std::uint32_t first = kNone;  // of its chunks
  };

  enum class Keep : std::uint8_t { kWhatIsThere, kNothing };
  void name_chunk(std::uint64_t name, const ChainKey& block, Keep keep) REQUIRES(mutex_);
  void drop_chunk(std::uint32_t at) REQUIRES(mutex_);
  void attach(std::uint32_t at, const ChainKey& block) REQUIRES(mutex_);
  void detach(std::uint32_t at) REQUIRES(mutex_);
  void link_youngest(std::uint32_t at) REQUIRES(mutex_);
  void unlink(std::uint32_t at) REQUIRES(mutex_);
  void tell(std::uint32_t at, std::optional<Tier> tier) REQUIRES(mutex_);
  std::optional<Tier> tier_of(const ChainKey& block) const REQUIRES(mutex_);
  FeedCosts costs_now() const REQUIRES(mutex_);

  const BlockFeedOptions options_;
  mutable Mutex mutex_;
  std::vector<Chunk> chunks_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::uint32_t> chunk_of_ GUARDED_BY(mutex_);  // by name
  std::unordered_map<ChainKey, Place, ChainKeyHash> places_ GUARDED_BY(mutex_);
  std::uint32_t oldest_ GUARDED_BY(mutex_) = kNone, youngest_ GUARDED_BY(mutex_) = kNone;
  std::vector<FeedEntry> events_ GUARDED_BY(mutex_);  // number n at (n - 1) % events_kept
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;         // number of the last one
  std::uint64_t gaps_ GUARDED_BY(mutex_) = 0;
  CostCurves curves_ GUARDED_BY(mutex_);
};

}  // namespace loci
