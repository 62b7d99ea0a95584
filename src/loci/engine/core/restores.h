// SPDX-License-Identifier: Apache-2.0
// What a request that waits has of its state: which blocks it finds on the device, which of the others are
// loaded and which computed, and where all of its tokens' state comes from. Decides only: it pins, places and
// begins nothing.
//
// An example: a prompt of six blocks and a few tokens more, t. K: on the device; h: in host memory alone; d:
// on the disk alone; .: nowhere.
//
//     block              0   1   2   3   4   5   t
//     choose()           K   h   h   d   .   d   .      blocks 1, 2, 3 and 5 could be loaded
//     plan()             K   h   h   c   .   c   .      the disk's link is booked for long, so 3 and 5 are
//                                                       computed (c), as 4 and t are anyway
//     sources()          1 block from the device, 2 from host memory; 3 blocks and t computed, 2 of them
//                        because loading was too slow
//
// plan() describes the missing blocks to policy/restore_plan.h, and writes its answer into what was found.
//
// In a model with a narrow window no leading blocks are computed. plan() weighs places to go on from
// (restore_plan.h: choose_place()), and choose() is asked again with the chosen one as `last_block`.
//
// It owns the rule by which state is restored, which never changes: it has no invariant to test. It requires
// that the request waits. It calls the index, the transfers, the prefixes, the places, the windows and the
// times of passes; load_beside() counts the batch and the queue.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "loci/engine/core/batch.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/load_link.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"
#include "loci/policy/admission.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/restore_plan.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(blocks · log(children)) of the request, unless noted.
class Restores {
 public:
  // All eight must outlive it.
  Restores(const CoreConfig& config, const CostModel& costs, const BlockIndex& index,
           const Transfers& transfers, const Prefixes& prefixes, const Places& places, const Windows& windows,
           const PassTimes& pass_times);

  // --- what there is ---

  // Beyond which nothing is loaded for the request.
  Tier slowest_for(const CoreRequest& request) const;
  // The same before its turn.
  Tier slowest_ahead(const CoreRequest& request) const;
  // Beyond which looking ahead is of no use to the request: what slower tiers have it will not load, nor by
  // way of host memory. (That a tier does not answer just now makes no difference.)
  Tier slowest_wanted(const CoreRequest& request) const;
  // The block can be brought back, but not ahead of the request's turn.
  bool is_for_later(const CoreRequest& request, BlockId block) const;
  struct Rules {
    Tier slowest = Tier::kDevice;  // nothing is loaded from tiers beyond it
    bool copies = true;            // state of siblings may be copied (layer groups with a window)
    bool in_flight = false;        // a pass is
    // What is on its way to a request in a model with windows; it goes on from there. May be null.
    const CoreBeginning* coming = nullptr;
    // In a model with windows: it goes on from no place behind this block.
    std::uint32_t last_block = UINT32_MAX;
  };
  // What the request finds, and what it needs of the device.
  CoreProbes choose(const CoreRequest& request, const Rules& rules) const;
  // The probe's block is computed, and not rotated from its original. O(groups).
  void drop_original(CoreProbes& probes, CoreProbe& found) const;

  // --- what is loaded ---

  // What others ask of the processor.
  struct Load {
    std::uint64_t prompt_tokens = 0;  // that running requests still have to compute before they decode
    std::uint32_t others = 0;         // requests that run or wait, without this one
  };
  // Beside one that waits, in the queue or before it. `prompt_tokens`: that running prompts lack.
  static Load load_beside(const CoreRequest& request, const Batch& batch, const FairQueue& queue,
                          std::uint64_t prompt_tokens) {
    const std::size_t itself = request.before_queue->until ? 0 : 1;
    return {.prompt_tokens = prompt_tokens,
            .others = static_cast<std::uint32_t>(batch.size() + queue.size() - itself)};
  }
  // `probes`: by choose() with `rules`. What is to be computed though a tier has it is so in the probes
  // afterwards, and `rules.last_block` is what they were made for.
  RestoreForecast plan(const CoreRequest& request, CoreProbes& probes, Rules& rules, const Load& load) const;
  // What the request finds without siblings' state (layer groups with a window), where it goes on earlier.
  // What the plan computes is computed still.
  CoreProbes without_copies(const CoreRequest& request, const CoreProbes& planned, const Rules& rules) const;
  // Whether the beginning of a block is worth waiting for, before anything else begins. The rules that weigh
  // do so for this block alone. O(groups).
  bool worth_loading(const CoreBeginning& beginning) const;
  // What its first pass that reads it projects. Before it is admitted.
  CoreRequest::ToProject to_project(const CoreRequest& request, const CoreProbes& probes) const;
  // The blocks of the request's state that begin to move before it is admitted, of each tier the first ones.
  // (What a cut has moved and the device has is rotated at admission, which takes no time.)
  std::vector<std::uint32_t> to_preload(const CoreRequest& request, const CoreProbes& probes) const;

  // --- where it comes from ---

  // Where the state of the request's tokens comes from, and why the rest does not. Before it is admitted.
  FoundSources sources(const CoreRequest& request, const CoreProbes& probes, bool with_copies) const;

 private:
  // Counts what groups without window need.
  void count_needs(CoreProbes& probes) const;
  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }
  std::uint32_t tokens_there(const CoreProbes& probes, std::uint32_t block, bool with_copies) const;
  // The same of one block, of whose `count` tokens `there` are on the device, or will be copied there.
  FoundBlock source_of(const CoreRequest& request, const CoreProbe& found, std::uint32_t number,
                       std::uint32_t there, std::uint32_t count) const;
  // Those of the block's tokens behind the `there` first ones that a slower tier has as the end of a
  // sequence, which was waited for in vain (beginnings.h).
  std::uint32_t late_tokens(const CoreRequest& request, std::uint32_t number, std::uint32_t there) const;
  // The price of loading the block, with projecting; without that of computing it.
  RestorableBlock restorable(const CoreProbe& found, std::uint32_t number) const;
  // What else is booked: links, the batch, who waits. Nothing of the request itself.
  RestoreProblem problem_beside(const Load& load) const;
  void add_computed(RestoreProblem& problem, std::uint64_t rows, Nanos compute) const;
  RestoreProblem problem(const CoreRequest& request, CoreProbes& probes, const Load& load) const;
  // What a request has to do with a link.
  struct UsedLink {
    Nanos load = 0;        // of the blocks that it could load over it
    bool loads = false;    // there are some
    bool awaited = false;  // others of its blocks are on their way
    void add(Nanos block) {
      load += std::min(block, kCostMax - load);
      loads = true;
    }
    bool any() const { return loads || awaited; }
  };
  using UsedLinks = std::array<UsedLink, kLoadLinks>;
  void set_shared_link(RestoreProblem& problem, const UsedLinks& used) const;
  // `loads`: those of `place`. `problem`: problem_beside().
  RestoreProblem problem_at(const CoreRequest& request, std::uint32_t place, const PlaceLoads::Parts& loads,
                            RestoreProblem problem) const;
  // Places to go on from, the last one first, up to the first from which nothing is loaded.
  struct WeighedPlaces {
    std::vector<std::uint32_t> tokens;
    std::vector<PlaceNeeds> needs;  // may be fewer
    PlaceLoads loads;
  };
  WeighedPlaces places_of(const CoreProbes& probes, const Rules& rules) const;
  // The best plan for what was found. What it computes is so in the probes afterwards.
  RestorePlan plan_found(const CoreRequest& request, CoreProbes& probes, const Load& load) const;
  bool comes_over(const CoreProbe& found, LoadLink link) const;
  // True: blocks of it do, and there are both peers and a store.
  bool comes_over(const CoreProbes& probes, LoadLink link) const;
  // O(blocks · groups · links), with a price for kPlacesPriced places at most.
  RestoreForecast plan_place(const CoreRequest& request, CoreProbes& probes, Rules& rules,
                             const Load& load) const;
  bool is_projected(const CoreRequest& request, const CoreProbe& found, std::uint32_t number) const;
  std::optional<Tier> preloaded_from(const CoreRequest& request, const CoreProbe& found,
                                     std::uint32_t number) const;

  const CoreConfig& config_;
  const CostModel& costs_;
  const BlockIndex& index_;
  const Transfers& transfers_;
  const Prefixes& prefixes_;
  const Places& places_;
  const Windows& windows_;
  const PassTimes& pass_times_;
  std::uint32_t group_count_;
  RestoreRule rule_;
};

}  // namespace loci
