// SPDX-License-Identifier: Apache-2.0
// Counts the requests, tokens and bytes that go into a run's core and come out of it, to show that none is
// lost and none is made up. If the counts do not add up the program ends, as with a broken invariant of the
// core.
//
//   1. each request that arrived is live or has ended, and the core has as many live as the run
//   2. tokens of prompts, cached ones, sampled ones and rows of passes are as many as the core says
//   3. each move is in flight or has ended, of each link and with each result as the core says
//   4. of each link and each form the bytes that began to move have ended, or were lost when a process ended
//   5. blocks are saved and loaded as hidden states as often as the core says
//   6. at the end of the run nothing is live, pinned or in flight
//
// Thread-compatible. All but the checks is O(1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "loci/engine/core/core.h"
#include "loci/memory/state_form.h"

namespace loci::sim {

class Ledger {
 public:
  void arrived() { ++live_; }
  void ended() { --live_; }
  void rejected(const Rejected& output) {
    --live_;
    if (output.may_come_again()) ++rejected_;
  }
  void restored(std::uint32_t prompt_tokens, std::uint32_t cached_tokens) {
    prompt_ += prompt_tokens;
    cached_ += cached_tokens;
  }
  void sampled() { ++sampled_; }
  void pass(std::uint64_t rows) { ++passes_, rows_ += rows; }
  // What moves over a link.
  struct Load {
    CoreLink link = CoreLink::kHostLoad;
    StateForm form = StateForm::kKeysAndValues;
    std::uint64_t bytes = 0;
  };
  void began(const Load& load) {
    ++in_flight_;
    begun_[place(load)] += load.bytes;
  }
  void ended(const Load& load, MoveResult result) {
    --in_flight_;
    ++results_[static_cast<std::size_t>(load.link)][static_cast<std::size_t>(result)];
    over_[place(load)] += load.bytes;
    if (load.form != StateForm::kHidden || result != MoveResult::kDone) return;
    ++(load.link == CoreLink::kDiskSave ? hidden_saved_ : hidden_loaded_);
  }

  // Checks 1 to 3 and 5; may be called after any step.
  void check(const CoreStats& stats) const;
  // Checks 4 and 6 too; call it when the run is over.
  void check_end(const CoreStats& stats) const;
  // Call it after check(): the process ends, and with it its requests and moves.
  void restart();

 private:
  static constexpr std::size_t kForms = 2;
  static std::size_t place(const Load& load) {
    return static_cast<std::size_t>(load.link) * kForms + static_cast<std::size_t>(load.form);
  }
  // Counts of the present process.
  std::uint64_t live_ = 0, rejected_ = 0, prompt_ = 0, cached_ = 0, sampled_ = 0, passes_ = 0, rows_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t hidden_saved_ = 0, hidden_loaded_ = 0;  // blocks
  std::array<std::array<std::uint64_t, kMoveResults>, kCoreLinks> results_{};
  // Counts of the whole run, by link and form.
  std::array<std::uint64_t, kCoreLinks * kForms> begun_{}, over_{};
};

}  // namespace loci::sim
