// SPDX-License-Identifier: Apache-2.0
// What it would cost to have the state of a running request again, were it suspended now and its slots used
// by others (giving_way.h weighs that against what its tenant was given).
//
// An example: a request of six blocks; h: host memory has a copy of the block, .: nothing has one. Loading a
// block takes as long as computing 4 tokens of it.
//
//     block            0   1   2   3   4   5
//     copies           h   h   h   .   h   .      4 blocks are loaded, 2 computed: 4 * 4 + 2 * 32 = 80 tokens
//
//     With a window that does not reach to the first token it would go on from one place (places.h), and
//     compute all that is behind it. Behind block 2 that is 3 * 4 + 3 * 32 = 108 tokens, and what it takes
//     to load what the window sees there. Behind the hole there is no place.
//
// It owns the estimate, which keeps nothing: it has no invariant to test. It requires that the request runs.
// It calls the index, the transfers, the places and the times of passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "loci/engine/core/core.h"
#include "loci/engine/core/load_link.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"
#include "loci/policy/restore_plan.h"

namespace loci {

// Thread-compatible; used by whoever steps the core.
class SuspensionCost {
 public:
  static constexpr std::size_t kBlocksAsked = 64;
  static constexpr std::uint32_t kWindowBlocksAsked = 4;

  // All five must outlive it.
  SuspensionCost(const CoreConfig& config, const BlockIndex& index, const Transfers& transfers,
                 const Places& places, const PassTimes& pass_times);

  // Its tokens that would be computed, and for what would be loaded now, as many as are computed in the time
  // of the loads. Behind a window that does not reach to the first token: at the place to go on from that
  // costs least. Never more than it has. An estimate: of many blocks it looks at kBlocksAsked, in equal
  // distances, and before each of these at kWindowBlocksAsked of those that a window sees.
  // O(kBlocksAsked · kWindowBlocksAsked · groups).
  std::uint64_t tokens_to_restore(const CoreRequest& request) const;

 private:
  // The slowest tier that it would load from.
  Tier slowest_later() const;
  // Tiers whose link's turn is waited for already.
  using LinksWaited = std::array<bool, kTiers>;
  // Of a block, in parts of a token's time.
  struct LaterLoad {
    Tier from = Tier::kDevice;     // it stays there
    std::uint64_t parts = 0;       // loading it
    std::uint64_t link_parts = 0;  // until the link begins
    std::uint64_t cost(std::uint64_t blocks, LinksWaited& waited) const {
      if (from == Tier::kDevice) return 0;
      const bool begins = !std::exchange(waited[index_of(from)], true);
      return blocks * parts + (begins ? link_parts : 0);
    }
  };
  // Absent: no tier up to `slowest` has the block's state in `groups`.
  std::optional<LaterLoad> load_later(const CoreRequest& request, std::uint32_t number, GroupSet groups,
                                      Tier slowest) const;
  std::uint64_t tokens_behind_windows(const CoreRequest& request, Tier slowest) const;
  std::optional<std::uint64_t> window_cost(const CoreRequest& request, std::uint32_t end, Tier slowest,
                                           LinksWaited waited) const;

  const CoreConfig& config_;
  const BlockIndex& index_;
  const Transfers& transfers_;
  const Places& places_;
  const PassTimes& pass_times_;
  RestoreRule rule_;
};

}  // namespace loci
