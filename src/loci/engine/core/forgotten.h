// SPDX-License-Identifier: Apache-2.0
// Deletes the state of deleted conversations (Forget). An example: a conversation of three blocks and a tail,
// which shares its first block with another conversation:
//
//     root - 0 - 1 - 2 - tail       forget() goes from the end to the root: the tail, 2 and 1 are dropped
//              \                    from every tier, and the disk is told to forget its records. Block 0 is
//               1'                  what 1' hangs from: it stays, and so does all above it.
//
// Blocks that continue the whole sequence are dropped first, because their state has seen all of it. A
// sequence of less than a block has no such blocks.
//
// A step drops about kDropsInAStep nodes, however large a conversation is. has_more() tells that the next
// step continues and should come soon. Only if the bounds below are exceeded is a path dropped at once.
//
// If a request or a move pins a node, its path waits, and retry() continues where forget() stopped. Meanwhile
// the request may go on using the node. If somebody computes a block of the same name again, it belongs to
// them and stays. Until all of the disk's earlier entries are known every path waits, because its nodes may
// still come.
//
// It owns the paths that are still to be dropped: at most kForgottenMax paths and kForgottenTokensMax tokens.
// Beyond these, the oldest path of the tenant that has most leaves. If it only waited for its turn, it is
// dropped in this step, whatever that costs; else it is given up and counted. So no tenant's deletions are
// given up for another's. Tenants take turns when paths are tried again. It requires that forget() gets
// sequences from their first token on, and that retry() is called in each step. It calls only the index, and
// Prefixes, which knows the names of blocks. Invariants, which check_invariants() tests (core.h has all):
//   7. Paths and their tokens are bounded, and a path that waits for a node has memory for twice its tokens
//      at most. A path waits for a node, or only for its turn, or has not been tried since all earlier
//      entries are known. A step's portion is not exceeded.
//   10. Paths, their tokens and those that wait for their turn are counted, and no tenant is here without a
//      path. A path has a node to drop, and tokens for its nodes alone. Nodes that were found to continue it
//      are dropped before it ends. Only a store that is there is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/prefixes.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"

namespace loci {

inline constexpr std::size_t kForgottenMax = 4096;
inline constexpr std::size_t kForgottenTokensMax = std::size_t{8} << 20;
inline constexpr std::size_t kDropsInAStep = 24;

// Thread-compatible; used by whoever steps the core.
class Forgotten {
 public:
  // `prefixes` and `index` must outlive it. `recovers`: there is a disk, and recovered() will be called.
  // `shares`: there is a shared store, which must forget too.
  Forgotten(const Prefixes& prefixes, BlockIndex& index, bool recovers, bool shares)
      : prefixes_(prefixes), index_(index), recovers_(recovers), shares_(shares) {}

  // Takes what the event has. Cost: kDropsInAStep nodes · log(children); all children of a node are looked up
  // together. If the event brought no keys also O(tokens), and if bounds are exceeded all nodes of the
  // paths that leave.
  void forget(Forget&& event);
  // Says that all of the disk's earlier entries are known.
  void recovered() { recovers_ = false; }
  // Tries waiting paths again, because nodes may have been let go. Called once in each step, after forget(),
  // with which it shares kDropsInAStep nodes. Costs O(kRetriesMax) beside them.
  void retry();
  // True: nodes that nobody uses are still to be dropped.
  bool has_more() const { return !recovers_ && unfinished_paths_ > 0; }
  // True: paths wait for the disk's earlier entries. A process that ended now would leave what these hold.
  bool waits_for_entries() const { return recovers_ && waiting_paths_ > 0; }

  // Keys of the blocks that were dropped since the last call, and of those that were gone before; the shared
  // store may have them.
  std::vector<ChainKey> take_shared() { return std::exchange(shared_, {}); }

  // What deletions that ended since the last call held (Plan::spent).
  std::vector<SpentText> take_spent() { return std::exchange(spent_, {}); }

  void add_stats(CoreStats& stats) const;
  // Between steps. Aborts on a broken invariant. O(paths).
  void check_invariants() const;

 private:
  // A node that continues the whole sequence. Between steps its id may be given to another node.
  struct Below {
    BlockId id;
    ChainKey key;  // the node's key; for a tail that of its parent
    bool is_tail = false;
  };
  // The rest of a sequence: nodes[0] is the root or gate, nodes[i] the block after i blocks of tokens.
  struct Path {
    std::vector<ChainKey> nodes;
    std::shared_ptr<const std::vector<TokenId>> sequence;
    std::span<const TokenId> tokens;  // of it: those after the root or gate
    bool waited = false;              // drop() has met a node that somebody uses
    BlockId waits_for = kNoBlock;     // that node; nothing is tried before it is let go
    bool is_whole = true;             // none of `nodes` has been dropped
    bool unfinished = false;          // it only waits for the next step
    // Nodes that continue the whole sequence, parents before children. Children of the first of them have
    // been looked up; then nodes are dropped from the end.
    std::vector<Below> below;
    std::size_t expanded = 0;
    bool is_expanded = false;
    bool was_cut = false;    // dropping took more than one step, in which others may have continued parts of
                             // it
    bool has_gone = false;   // some of its nodes have been dropped
    BlockId met = kNoBlock;  // one of these nodes that somebody uses
  };
  enum class Progress : std::uint8_t { kDone, kWaits, kUnfinished };

  static constexpr std::size_t kRetriesMax = 16;

  void forget_shared(const ChainKey& key) {
    if (shares_) shared_.push_back(key);
  }
  // The paths of one tenant; the next one to be tried comes first.
  struct Waiting {
    std::deque<Path> paths;
    std::size_t tokens = 0;
  };
  using Tenants = std::map<TenantId, Waiting>;

  void end(Path path);
  void shorten(Path& path);
  void wait(const TenantId& tenant, Path path);
  void keep_bounds();
  Path pop(Tenants::iterator tenant);
  // The tenant whose oldest path leaves: the one with most paths if there are too many paths, the one with
  // most tokens if there are too many tokens.
  Tenants::iterator most_waiting();
  void read_ahead(const Path& path) const;
  Progress drop(Path& path);
  bool is_pinned(BlockId node) const;
  static Progress wait_for(BlockId node, Path& path);
  bool try_to_drop(Path& path);
  Progress drop_what_goes_on(BlockId last, std::span<const TokenId> rest, Path& path);
  bool drop_below(Path& path);
  bool still_there(const Below& node) const;
  void add_children(BlockId parent, std::span<const TokenId> tokens, std::vector<Below>& to) const;
  Progress drop_tails(BlockId parent, std::span<const TokenId> tokens, Path& path);
  void check_path(const Path& path) const;

  const Prefixes& prefixes_;
  BlockIndex& index_;
  bool recovers_;
  bool shares_;
  std::vector<ChainKey> shared_;  // take_shared()
  std::vector<SpentText> spent_;  // take_spent()
  Tenants waiting_;               // tenants with waiting paths
  std::size_t waiting_paths_ = 0;
  std::size_t waiting_tokens_ = 0;
  std::size_t unfinished_paths_ = 0;        // of the waiting paths
  std::size_t drops_left_ = kDropsInAStep;  // in this step
  TenantId tried_last_;
  std::uint64_t given_up_ = 0;
};

}  // namespace loci
