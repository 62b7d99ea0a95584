// SPDX-License-Identifier: Apache-2.0
// How far away the state of waiting requests' prompts is (policy/admission_order.h). Blocks that a cut has
// moved count where they are.
//
// An example: a prompt of three blocks and a few tokens; the device has A, the disk has B and C.
//
//     of()           looks up A B C: tiers 0 2 2. It keeps how near they are, and who asks for which block.
//     C is loaded    the index reports C: its tier is 0 now, so every request that wants it is nearer
//                    take_changes() returns them, and the queue asks again
//     of()           O(1): the distance is smaller
//
// In a model with windows a request goes on from a place where all windows are whole (places.h). The last
// one counts: of a block before it, the slowest of the tiers that its layers read there; what is behind it
// is computed, so it is nowhere.
//
//     all              2   2   2   2   .      tiers
//     window of 40     .   0   2   .   .      it goes on behind C: 2 2 2, and D is as far as what follows
//
// An admission order by distances needs those of many requests whenever a pass is formed, but few blocks
// move between two passes. So a distance is computed once and kept while its request waits, and the queue
// asks again for those that have changed alone. For histories that were cut, and for requests beyond those
// that are remembered, it is computed each time. Of a prompt of more than 512 blocks every second (third,
// ...) is looked at, and stands for those up to the next.
//
// It owns the sums. It requires that a request's tokens do not change while it waits, and that forget() is
// called when it ceases to wait. It calls the index, the prefixes and the places. Invariants, which
// check_invariants() tests (core.h has all):
//   10. Tiers and sums agree with the index, except for changes that were not taken yet; each remembered
//       block's watchers have the request once, where it says.
#pragma once

#include <array>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/request.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/key_map.h"
#include "loci/policy/admission.h"

namespace loci {

// Thread-compatible; used by whoever steps the core.
class Distances {
 public:
  // All arguments must outlive it.
  Distances(const CoreConfig& config, BlockIndex& index, const Prefixes& prefixes, const Places& places);

  // The distance of a waiting request, with the changes that were taken. Costs O(512) the first time, then
  // O(1); in a model with windows O(512) again after each change.
  FairQueue::Distance of(CoreRequest& request);
  // Says that the request no longer waits. O(512).
  void forget(const CoreRequest& request);
  // Takes the index's changes. Returns whose distance has changed since of() was asked last. O(changes ·
  // requests that want the blocks).
  std::vector<const CoreRequest*> take_changes();

  // Aborts on a broken invariant. O(blocks that are remembered).
  void check_invariants() const;

 private:
  using GroupTiers = std::array<std::uint8_t, kLayerGroupsMax>;
  // At a block of a request.
  struct Look {
    ChainKey key;
    std::uint32_t tokens = 0;   // that it stands for
    std::uint32_t watcher = 0;  // where the block's watchers have the request
    GroupTiers tiers{};         // where each group's part is; kFar: nowhere
  };
  struct Known {
    const CoreRequest* request = nullptr;
    std::vector<Look> looks;
    bool has_moved = false;  // since of() was asked, and take_changes() has returned it
    std::uint64_t sum = 0;   // over the tokens of these blocks: how much nearer than kNowhere they are
  };
  struct Watcher {
    Known* known = nullptr;
    std::uint32_t number = 0;  // of the look
  };
  // Most blocks are looked at for one request.
  using Watchers = boost::container::small_vector<Watcher, 1>;

  GroupTiers tiers_of(BlockId id) const;
  std::uint64_t sum_of(std::span<const Look> looks) const;
  std::size_t place_among(std::span<const Look> looks) const;
  std::uint64_t nearness(CoreRequest& request) const;
  std::uint64_t remember(CoreRequest& request);
  void watch(Known& known, std::uint32_t number);

  const CoreConfig& config_;
  BlockIndex& index_;
  const Prefixes& prefixes_;
  const Places& places_;
  std::unordered_map<std::uint64_t, Known> known_;  // by arrival; never iterated but to check
  KeyMap<Watchers> watchers_;
  std::size_t blocks_ = 0;  // blocks that are remembered
};

}  // namespace loci
