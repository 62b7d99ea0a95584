// SPDX-License-Identifier: Apache-2.0
// Decides while the server runs which blocks are saved as hidden states. The share of the beginning follows
// from what was measured (policy/hidden_share.h); here it is chosen again, by the same rule, from what loads,
// passes and projecting really take.
//
// An example: the disk was measured at 2 GB/s, so blocks are saved as keys and values. Another program begins
// to use it, and loads take ten times as long. Their correction learns that; after kLoadsApart more blocks
// have been loaded, or given up, the share is chosen anew, and from then on most blocks are saved as hidden
// states. What is on the disk stays as it is: both forms share its room, and each block says which one it
// has.
//
// A share gives way only to one with which a usual turn begins in at most nine tenths of the time, so what
// differs from load to load changes nothing.
//
// It owns when the share is chosen next. It calls nobody but those whose times it asks for, and tells the
// transfers, which save.
#pragma once

#include <cstdint>
#include <optional>

#include "loci/engine/core/core.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/core/transfers.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/hidden_share.h"

namespace loci {

// Thread-compatible; used by whoever steps the core.
class ShareFollower {
 public:
  // All must outlive it.
  ShareFollower(const CoreConfig& config, const CostModel& costs, Transfers& transfers,
                const PassTimes& pass_times)
      : config_(config), costs_(costs), transfers_(transfers), pass_times_(pass_times) {}

  // So many blocks come from the disk, or are given up, between two choices: several loads, of which each
  // teaches something.
  static constexpr std::uint64_t kLoadsApart = 128;

  // A disk that has become so slow that its loads are declined brings few: then any that ended are enough,
  // after so long.
  static constexpr Nanos kTimeApart = 10 * kNanosPerSecond;

  // Call it when moves have ended. The share of blocks that are saved from now on, if it is another one.
  std::optional<HiddenShare> look(Nanos now);
  // The same when the costs have changed.
  std::optional<HiddenShare> choose(Nanos now);

 private:
  CostCurves corrected() const;

  const CoreConfig& config_;
  const CostModel& costs_;
  Transfers& transfers_;
  const PassTimes& pass_times_;
  std::uint64_t loads_then_ = 0;  // that had ended when it was chosen last
  Nanos chosen_at_ = 0;
};

}  // namespace loci
