// SPDX-License-Identifier: Apache-2.0
// State that is deleted because what was said is (Forget). A conversation of three blocks and a tail, which
// shares its first block with another conversation:
//
//     root - 0 - 1 - 2 - tail       forget() goes from the end to the root: the tail, 2 and 1 are dropped
//              \                    from every tier, and the disk is told to forget its records. Block 0 is
//               1'                  what 1' hangs from: it stays, and so does all above it.
//
// What goes on from the whole of the sequence is dropped first, as it knows all of it; but not from one of
// less than a block.
//
// A step drops about kDropsInAStep nodes, however much a conversation holds; has_more() says that the next
// one goes on where it stopped, and is wanted soon. Only beyond the bounds below a path is dropped whole.
//
// A node that a request or a move pins is waited for: retry() goes on where forget() stopped. Meanwhile who
// has it may go on using it, and a block that somebody else computes anew under the same name is theirs.
// Until all that the disk has from before is known every path waits, since its nodes may still come.
//
// It owns what is still to be dropped, at most kForgottenMax paths of kForgottenTokensMax tokens. Beyond, it
// is the turn of the oldest of the tenant that has most of them: one that waited for nobody but its portions
// is dropped in this step, whatever that costs; another one is given up and counted, so nobody's deletions
// are given up for another's. Tenants take turns in what is tried again. It calls nobody but the index and
// Prefixes, which knows the names of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
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

// Thread-compatible: the core's thread has it.
class Forgotten {
 public:
  // Both outlive it. `recovers`: there is a disk, of which recovered() will be told.
  // `shares`: there is a shared store, which is to forget too.
  Forgotten(const Prefixes& prefixes, BlockIndex& index, bool recovers, bool shares)
      : prefixes_(prefixes), index_(index), recovers_(recovers), shares_(shares) {}

  // O(tokens), for their names, and kDropsInAStep nodes · log(children); a node's children are all looked up
  // together. Beyond the bounds all nodes of the paths that leave.
  void forget(const Forget& event);
  // All that the disk has from before is known.
  void recovered() { recovers_ = false; }
  // Something may have been let go. Once in each step, behind forget(), with which it shares kDropsInAStep
  // nodes. O(kRetriesMax) beside them.
  void retry();
  // Something is still to be dropped that nobody uses.
  bool has_more() const { return !recovers_ && unfinished_paths_ > 0; }

  // The keys of the blocks that went since the last call, and of those that were not here any more: the
  // shared store may have them.
  std::vector<ChainKey> take_shared() { return std::exchange(shared_, {}); }

  void add_stats(CoreStats& stats) const;

 private:
  // A node that goes on from the end of a sequence. Between steps its id may have become another one's.
  struct Below {
    BlockId id;
    ChainKey key;  // its own; of a tail its parent's
    bool is_tail = false;
  };
  // What is left of a sequence: nodes[0] is the root or gate, nodes[i] the block after i blocks of tokens.
  struct Path {
    std::vector<ChainKey> nodes;
    std::vector<TokenId> tokens;   // after the root or gate
    bool waited = false;           // drop() has met what somebody uses
    BlockId waits_for = kNoBlock;  // that; nothing is tried before it is let go
    bool is_whole = true;          // none of `nodes` has been dropped
    bool unfinished = false;       // it waits for nobody but the next step
    // What goes on from all of it, parents before children. The children of so many are among them; then the
    // last are dropped first.
    std::vector<Below> below;
    std::size_t expanded = 0;
    bool is_expanded = false;
    bool was_cut = false;    // this took more than one step, in which others may have gone on with some of it
    bool has_gone = false;   // something of it
    BlockId met = kNoBlock;  // among them, and somebody uses it
  };
  enum class Progress : std::uint8_t { kDone, kWaits, kUnfinished };

  static constexpr std::size_t kRetriesMax = 16;

  void forget_shared(const ChainKey& key) {
    if (shares_) shared_.push_back(key);
  }
  // Of one tenant, the first to be tried again first.
  struct Waiting {
    std::deque<Path> paths;
    std::size_t tokens = 0;
  };
  using Tenants = std::map<SharingGroup, Waiting>;

  void wait(const SharingGroup& tenant, Path path);
  void keep_bounds();
  Path pop(Tenants::iterator tenant);
  // The tenant whose oldest path is given up: the one with most paths where there are too many paths, with
  // most tokens where there are too many tokens.
  Tenants::iterator most_waiting();
  Progress drop(Path& path);
  bool is_pinned(BlockId node) const;
  static Progress wait_for(BlockId node, Path& path);
  bool try_to_drop(Path& path);
  Progress drop_what_goes_on(BlockId last, std::span<const TokenId> rest, Path& path);
  bool drop_below(Path& path);
  bool still_there(const Below& node) const;
  void add_children(BlockId parent, std::span<const TokenId> tokens, std::vector<Below>& to) const;
  Progress drop_tails(BlockId parent, std::span<const TokenId> tokens, Path& path);

  const Prefixes& prefixes_;
  BlockIndex& index_;
  bool recovers_;
  bool shares_;
  std::vector<ChainKey> shared_;  // take_shared()
  Tenants waiting_;               // of whom something waits
  std::size_t waiting_paths_ = 0;
  std::size_t waiting_tokens_ = 0;
  std::size_t unfinished_paths_ = 0;        // of those that wait
  std::size_t drops_left_ = kDropsInAStep;  // in this step
  SharingGroup tried_last_;
  std::uint64_t given_up_ = 0;
};

}  // namespace loci
