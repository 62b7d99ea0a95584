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
// A node that a request or a move pins is waited for: retry() goes on where forget() stopped. Meanwhile who
// has it may go on using it, and a block that somebody else computes anew under the same name is theirs.
// Until all that the disk has from before is known every path waits, since its nodes may still come.
//
// It owns what is still to be dropped, at most kForgottenMax paths of kForgottenTokensMax tokens. Beyond, the
// oldest of the tenant that has most of them are given up and counted, so nobody's deletions are given up for
// another's; tenants take turns in what is tried again. It calls nobody but the index and Prefixes, which
// knows the names of blocks.
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

// Thread-compatible: the core's thread has it.
class Forgotten {
 public:
  // Both outlive it. `recovers`: there is a disk, of which recovered() will be told.
  // `shares`: there is a shared store, which is to forget too.
  Forgotten(const Prefixes& prefixes, BlockIndex& index, bool recovers, bool shares)
      : prefixes_(prefixes), index_(index), recovers_(recovers), shares_(shares) {}

  // O(tokens · log(children)).
  void forget(const Forget& event);
  // All that the disk has from before is known.
  void recovered() { recovers_ = false; }
  // Something may have been let go. O(kRetriesMax), and of what was let go what forget() costs.
  void retry();

  // The keys of the blocks that went since the last call, and of those that were not here any more: the
  // shared store may have them.
  std::vector<ChainKey> take_shared() { return std::exchange(shared_, {}); }

  void add_stats(CoreStats& stats) const;

 private:
  // What is left of a sequence: nodes[0] is the root or gate, nodes[i] the block after i blocks of tokens.
  struct Path {
    std::vector<ChainKey> nodes;
    std::vector<TokenId> tokens;   // after the root or gate
    bool waited = false;           // drop() has met what somebody uses
    BlockId waits_for = kNoBlock;  // that; nothing is tried before it is let go
  };
  enum class Progress : std::uint8_t { kDone, kWaits };

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
  Path pop(Tenants::iterator tenant);
  // The tenant whose oldest path is given up: the one with most paths where there are too many paths, with
  // most tokens where there are too many tokens.
  Tenants::iterator most_waiting();
  Progress drop(Path& path);
  bool is_pinned(BlockId node) const;
  static Progress wait_for(BlockId node, Path& path);
  Progress drop_what_goes_on(BlockId last, std::span<const TokenId> rest, Path& path);
  void add_children(BlockId parent, std::span<const TokenId> tokens, std::vector<BlockId>& to) const;
  Progress drop_tails(BlockId parent, std::span<const TokenId> tokens, Path& path);

  const Prefixes& prefixes_;
  BlockIndex& index_;
  bool recovers_;
  bool shares_;
  std::vector<ChainKey> shared_;  // take_shared()
  Tenants waiting_;               // of whom something waits
  std::size_t waiting_paths_ = 0;
  std::size_t waiting_tokens_ = 0;
  SharingGroup tried_last_;
  std::uint64_t given_up_ = 0;
};

}  // namespace loci
