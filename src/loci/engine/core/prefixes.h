// SPDX-License-Identifier: Apache-2.0
// Names of a request's blocks, and what the index has under these names: chains of keys from a tenant's root,
// public prefixes, lineages of histories that were cut.
//
// An example: tenant t sends the blocks A B C and the beginning of a fourth, D.
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
//   - A request looks from its root up to the first block that the index does not know: there is nothing
//     after it.
//   - State that a block lacks comes from a slower tier (transfers.h), from its original, or from a sibling's
//     first tokens.
//
// Corner cases:
//   - A history that was cut several times has a lineage after each cut. A block's original is in the oldest
//     lineage that has the block, so computed keys are rotated only once. Small cuts make many lineages: at
//     most eight are looked at, the newest of those that the index knows. Groups with a window have no
//     originals.
//   - Public prefixes belong to nobody. Only the prefix's own request writes to their blocks, while it runs.
//
// It owns the pins of public blocks and the keys of a request's blocks (RequestNames), which the request's
// arrival brings (arrival_keys.h): a step hashes the tokens of a reply, and little else.
// It requires that the index and the transfers outlive it, and calls only these two. Invariants, which
// check_invariants() tests (core.h has all):
//   2. Exactly the blocks of the present prefixes are public.
//   4. Public blocks are whole, except the last one of a prefix.
//   5. A public prefix is a path from the public root.
//   10. Public blocks are counted once, and what public_chains() tells are the present prefixes.
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

// Thread-compatible; used by whoever steps the core. Looking up costs O(blocks · log(children)).
class Prefixes {
 public:
  // All three must outlive it.
  Prefixes(const CoreConfig& config, BlockIndex& index, const Transfers& transfers);

  const ChainKeyHasher& hasher() const { return hasher_; }
  // The key of the root of the request's first block.
  ChainKey first_key(const CoreRequest& request) const;

  // --- looking up ---

  struct ProbeRules {
    Tier slowest = Tier::kDevice;  // nothing is loaded from tiers beyond it
    bool originals = true;         // originals may be used: no group has a window
    bool tails_may_move =
        false;  // a block to which a pass in flight appends may have other slots when a copy reads it
  };
  // What the index has for the tokens of a waiting request. Pins nothing.
  CoreProbes probe(const CoreRequest& request, const ProbeRules& rules) const;
  // How many of the request's first whole blocks the index knows. O(log(blocks)) once it has its keys.
  std::uint32_t known_blocks(CoreRequest& request) const;
  // False: find_beginning() would find nothing. It needs no probe.
  bool may_have_beginning(CoreRequest& request, Tier slowest) const;
  // The first block that the probes do not know.
  static std::uint32_t first_unknown(const CoreProbes& probes);
  // The device has the whole block in some groups and nothing of it in others, and nobody fills it. There a
  // copy of its first tokens is of use.
  bool lacks_a_group(BlockId id) const;
  // The beginning that a tier not slower than `slowest` has of the block, which lacks state in some group.
  std::optional<CoreBeginning> find_beginning(const CoreRequest& request, const CoreProbes& probes,
                                              std::uint32_t number, Tier slowest) const;
  // The block's parent, if it is in the index.
  BlockId find_parent(const CoreProbes& probes, std::size_t block) const;
  // The root or the gate below which the request's own blocks are.
  BlockPin open_parent(const CoreProbes& probes);
  // The keys of a waiting request's whole blocks. Which of them are public was decided at its arrival, and is
  // again when it has more blocks. O(blocks that it has more).
  const std::vector<ChainKey>& keys_of(CoreRequest& request) const;

  // --- keys that events bring ---

  // The arrival's keys: those that it brought, `made`, if what is public is as they say, and of its lineages
  // those that are looked at. Else they are made here: so a replay knows the same names at the same event.
  // The arrival is one that the core does not refuse.
  ArrivalKeys keys_of(const Arrival& event, ArrivalKeys made) const;
  // They are the request's names from now on.
  void take_keys(CoreRequest& request, ArrivalKeys keys) const;
  // The same for a deletion.
  ForgetKeys keys_of(const Forget& event, ForgetKeys made) const;
  // What is public now, for whoever makes such keys. Another one after each change.
  std::shared_ptr<const PublicChains> public_chains() const { return chains_; }

  // --- lineages ---

  // The block from which the request's block `block` is rotated, in whatever tier it is; kNoBlock: none.
  BlockId original_of(const CoreRequest& request, std::uint32_t block) const;

  // --- public prefixes ---

  // Makes these blocks, whose state is there, public until withdraw().
  void keep(RequestId id, std::uint32_t tokens, std::vector<BlockPin> blocks);
  // False: there is no such prefix.
  bool withdraw(RequestId id);
  // The number of blocks of all public prefixes, each counted once; it is the same in each group.
  std::uint32_t public_blocks() const { return public_blocks_; }
  std::vector<PublicPrefix> public_prefixes() const;

  void visit_pins(const std::function<void(const BlockPin&)>& visit) const;
  // Aborts on a broken invariant. O(blocks · log).
  void check_invariants() const;

 private:
  struct Public {
    std::uint32_t tokens = 0;
    std::vector<BlockPin> blocks;
    std::shared_ptr<const std::vector<ChainKey>> keys;  // of its whole blocks
  };

  bool is_public_block(const ChainKey& key) const;
  bool is_current(const PublicBeginning& beginning, std::size_t tokens) const;
  void choose_lineages(CoreLineage& lineage) const;
  void tell_chains();
  bool parts_from_others(BlockId known) const;
  void probe_public(const CoreRequest& request, CoreProbes& probes) const;
  void probe_siblings(BlockId parent, std::span<const TokenId> tokens, const ProbeRules& rules,
                      CoreProbe& found) const;
  void probe_public_siblings(const CoreProbes& probes, std::span<const TokenId> tokens,
                             CoreProbe& found) const;
  void find_original(const CoreLineage& lineage, std::uint32_t block, const ProbeRules& rules,
                     CoreProbe& found) const;

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  ChainKeyHasher hasher_;
  bool has_windows_;  // some group has a window
  std::map<RequestId, Public> public_;
  std::uint32_t public_blocks_ = 0;
  std::shared_ptr<const PublicChains> chains_ = std::make_shared<const PublicChains>();
};

}  // namespace loci
