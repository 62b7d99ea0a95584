// SPDX-License-Identifier: Apache-2.0
// Who gives way when the batch or the memory is full (docs/decisions/fairness.md). Decides only; whoever asks
// suspends whom it is told. With one tenant all of it is first come, first served.
//
// An example: two tenants of equal weight, a and b; a pool of twelve blocks, a batch of four places.
//
//     runs      a1 a2 a3 a4                      b1 waits. The batch is full, and b is below its share of two
//               4  4  2  2   blocks              places: a, which is furthest above its own, gives up a4.
//
//     runs      a1 a2                            b1 needs four blocks, and none is free. a has eight, more
//               6  6   blocks                    than its share of six; a2 gives way, but only once a was
//                                                given as many tokens more than b as a2 may have to compute
//                                                again, so that the two do not push each other out in turn.
//                                                What host memory or the disk can bring back counts as the
//                                                tokens that could be computed while it is loaded.
//
//     a1's next token opens a block, and none is free: the latest arrival of the tenant that holds most for
//     its weight gives up its own (Pensieve §4.3.5).
//
//     runs      a1 a2            b1            c1 is first in the queue and needs ten blocks. Nobody is above
//               2  2   blocks    4             its share of four, so nobody gives way: until a's and b's
//                                              replies end d1, which needs two, would wait as well. So d1
//                                              passes. So do others, until they and their replies have ten
//                                              blocks' tokens: then they wait until there is room for c1.
//                                              (If somebody gives way for d1, c1 may take that room first.)
//
// It owns nothing but its rules, and has no invariant to test. It requires that what it is asked about waits.
// From claim() until its answer is used nobody may join the batch, and only those who give way may leave it.
// It calls the index, the windows, the queue, the batch, the admission for what is kept for decodes, and the
// device's memory for how much of a pool requests may need. SuspensionCost says what a suspended request
// costs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "loci/engine/core/admission.h"
#include "loci/engine/core/batch.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/device_memory.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/suspension_cost.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"
#include "loci/policy/admission.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(batch · log) where not said otherwise.
class GivingWay {
 public:
  // All eight must outlive it.
  GivingWay(const CoreConfig& config, const BlockIndex& index, const Windows& windows, const FairQueue& queue,
            const Batch& batch, const Admission& admission, const DeviceMemory& device_memory,
            const SuspensionCost& cost)
      : config_(config),
        index_(index),
        windows_(windows),
        queue_(queue),
        batch_(batch),
        admission_(admission),
        device_memory_(device_memory),
        cost_(cost) {}

  // Who gives up its blocks for a decode that needs one; at least two requests run.
  CoreRequest& for_growth() const;
  // Who gives up its place in the full batch to the one that waits; null: nobody has to.
  CoreRequest* for_place(const CoreRequest& head) const;
  // Others may be admitted before this one, which lacks room: it needs a large part of some group's memory,
  // with it its tenant would be above its share, and fewer tokens have passed it than it has itself.
  bool lets_pass(const CoreRequest& head) const;
  // This one may be admitted before those, which lack room and let others pass: its tenant stays within its
  // share, or holds nothing yet. (Whoever gave way to one of them would do so again.)
  bool may_pass(const CoreRequest& head, std::span<CoreRequest* const> those) const;

  // What the one that waits may ask of a group's memory.
  struct Claim {
    std::uint32_t group = 0;
    bool within_share = false;                  // its tenant would not be above its share with it
    std::map<std::string, std::uint64_t> held;  // blocks, by tenant
    std::uint64_t weights = 0;                  // of all tenants that have requests
  };
  Claim claim(const CoreRequest& head, std::uint32_t group) const;
  // Who gives up memory next for it; null: there is enough, or nobody has to.
  CoreRequest* for_memory(const CoreRequest& head, const Claim& claim) const;
  // It gave way: its tenant holds less.
  void gave_way(const CoreRequest& victim, Claim& claim) const {
    claim.held[victim.tenant] -= blocks_held(victim, claim.group);
  }

 private:
  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }
  std::uint64_t held_by_tenant(const CoreRequest& head, std::uint32_t group) const;
  bool above_share(const CoreRequest& head, std::uint32_t group, std::uint64_t held) const;
  std::uint32_t blocks_held(const CoreRequest& request, std::uint32_t group) const;
  std::uint64_t blocks_needed(const CoreRequest& head, std::uint32_t group) const;
  std::map<std::string, std::uint64_t> blocks_by_tenant(std::uint32_t group) const;
  CoreRequest* latest_of(const std::string& tenant) const;

  const CoreConfig& config_;
  const BlockIndex& index_;
  const Windows& windows_;
  const FairQueue& queue_;
  const Batch& batch_;
  const Admission& admission_;
  const DeviceMemory& device_memory_;
  const SuspensionCost& cost_;
};

}  // namespace loci
