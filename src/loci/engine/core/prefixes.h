// SPDX-License-Identifier: Apache-2.0
// What a request's tokens are called, and what the index has under these names: chains of keys from a
// tenant's root, public prefixes, lineages of histories that were cut.
//
// An example: tenant t asks with the blocks A B C and the begin of a fourth, D.
//
//     root(t) - A - B - C - d        Each key is that of the parent's key and the block's tokens. probe()
//               K   .   K            looks up A, B, C: B is a hole, C has state behind it, d is the request's
//                                    own tail, which may begin with the state of a sibling that has the same
//                                    first tokens.
//
//     public - A - B - gate(t) - C   A and B were made public: they are found by everybody, and what follows
//                                    them is below a gate of the tenant's own. (Blocks that were public once
//                                    are passed by: whether their state is still there depends on what
//                                    others do.)
//
//     root(t) - A - B - C - D        The history A B C D E loses B and C. What is left, A D E, is a lineage:
//                \                   D' and E' hang below A from a gate whose key stands for what was
//                 lineage - D' - E'  dropped, so their state, which has seen B and C, is found by the same
//                                    history alone. D is the *original* of D': the same tokens two blocks
//                                    further on, whose keys rotate into place.
//
// The rules:
//   - A request looks from its root until the first block that the index does not know: behind it there is
//     nothing.
//   - What a block lacks comes from a slower tier (transfers.h), from its original, or from a sibling's first
//     tokens.
//   - A history that was cut several times has a lineage after each cut. The oldest one that has a block is
//     its original, so what was computed is rotated once. Groups with a window have no originals.
//   - Public prefixes belong to nobody: writing to their blocks is for the prefix's own request, while it
//     runs.
//
// It owns the hash of the keys, and the pins of what is public. It requires that the index and the transfers
// outlive it, and calls these two alone. Invariants, which check_invariants() tests:
//   1. Public blocks are counted once.
//   2. What is public is a part of exactly the prefixes that are there.
//   4. Public blocks are whole, but for a prefix's last one.
//   5. A public prefix is a path from the public root.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Thread-compatible: the core's thread has it. Looking up costs O(blocks · log(children)).
class Prefixes {
 public:
  // All three outlive it.
  Prefixes(const CoreConfig& config, BlockIndex& index, const Transfers& transfers);

  const ChainKeyHasher& hasher() const { return hasher_; }
  // The key of the root of the request's first block.
  ChainKey first_key(const CoreRequest& request) const;

  // --- looking up ---

  struct ProbeRules {
    Tier slowest = Tier::kDevice;  // beyond which nothing is loaded
    bool originals = true;         // they serve: no group has a window
    bool tails_may_move =
        false;  // what a pass in flight appends to may have other slots when a copy reads it
  };
  // What there is for the tokens of a request that waits. Pins nothing.
  CoreProbes probe(const CoreRequest& request, const ProbeRules& rules) const;
  // How many of the request's first whole blocks the index knows. O(log(blocks)) once it has its keys.
  std::uint32_t known_blocks(CoreRequest& request) const;
  // False: find_beginning() would find nothing. It costs no probe.
  bool may_have_beginning(CoreRequest& request, Tier slowest) const;
  // What a tier not slower than `slowest` has of the first block that the probes do not know.
  std::optional<CoreBeginning> find_beginning(const CoreRequest& request, const CoreProbes& probes,
                                              Tier slowest) const;
  // What the block hangs from, if that is there.
  BlockId find_parent(const CoreProbes& probes, std::size_t block) const;
  // The root or the gate that the request's own blocks are below.
  BlockPin open_parent(const CoreProbes& probes);
  // The keys of a waiting request's whole blocks, which it keeps; those that are public are so as of the
  // first call.
  const std::vector<ChainKey>& keys_of(CoreRequest& request) const;
  // Those that its arrival brought, where they are its blocks' names: nothing of it is public. An arrival
  // that brings none, as from a log, has them made here, so that a replay knows the same names at the same
  // event.
  void take_keys(CoreRequest& request, const Arrival& event) const;

  struct Names {
    std::vector<ChainKey> keys;     // of the root or gate, then of each whole block below it
    std::size_t tokens_before = 0;  // public, and not the tenant's
  };
  // Under which state of the tokens may lie: below the root, and below the gate behind what is public now.
  std::vector<Names> names_of(const Forget& event) const;

  // --- lineages ---

  // Not ok: the arrival's cuts cannot be.
  Status truncation_refusal(const Arrival& event) const;
  // Of a history with cuts; null: without. O(tokens · cuts).
  std::unique_ptr<const CoreLineage> lineage_of(const Arrival& event, const std::string& sharing) const;

  // The block that the request's block `block` is rotated from, whatever tier has it; kNoBlock: none.
  BlockId original_of(const CoreRequest& request, std::uint32_t block) const;

  // --- public prefixes ---

  // These blocks, whose state is there, are public from now on, until withdraw().
  void keep(RequestId id, std::uint32_t tokens, std::vector<BlockPin> blocks);
  // False: there is none.
  bool withdraw(RequestId id);
  // Blocks of all public prefixes, each once; so many of each group.
  std::uint32_t public_blocks() const { return public_blocks_; }
  std::vector<PublicPrefix> public_prefixes() const;

  void visit_pins(const std::function<void(const BlockPin&)>& visit) const;
  // Aborts on a broken invariant. O(blocks · log).
  void check_invariants() const;

 private:
  struct Public {
    std::uint32_t tokens = 0;
    std::vector<BlockPin> blocks;
  };

  void probe_public(const CoreRequest& request, CoreProbes& probes) const;
  void probe_siblings(BlockId parent, std::span<const TokenId> tokens, const ProbeRules& rules,
                      CoreProbe& found) const;
  void probe_public_siblings(const CoreProbes& probes, std::span<const TokenId> tokens,
                             CoreProbe& found) const;
  void find_original(const CoreLineage& lineage, std::uint32_t block, const ProbeRules& rules,
                     CoreProbe& found) const;
  ChainKey original_root(const std::string& sharing, std::span<const TokenId> tokens,
                         std::uint32_t& public_blocks) const;

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  ChainKeyHasher hasher_;
  bool has_windows_;  // some group
  std::map<RequestId, Public> public_;
  std::uint32_t public_blocks_ = 0;
};

}  // namespace loci
