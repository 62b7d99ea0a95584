// SPDX-License-Identifier: Apache-2.0
// Predicts how long passes take. The cost model predicts, and the times that passes really took correct it
// (policy/correction.h).
//
// An example: costs were never measured, and the model believes 1.5 ms a token. The first pass of a prompt,
// of 512 tokens, is predicted to take 768 ms and takes 256 ms. From then on passes of prompts are predicted
// to take a third. Passes of decodes only, and passes of both, have corrections of their own.
//
//     begin(pass 1)   in flight: 1      its time counts from here
//     begin(pass 2)   in flight: 1 2    queued behind 1 (passes ahead)
//     end()           in flight: 2      1 took from its begin to here; the time of 2 counts from here
//     end()                             2 took from the end of 1 to here
//
// A pass that waited for loads tells only that computing takes no longer: it counts if it took clearly less
// than predicted and no span of it was given up. So a server that brings back state in every turn still finds
// that it computes faster than was believed.
//
// Projecting hidden states is a part of passes that read them, whether or not they still wait for them. So
// the executor times it inside the pass, and says with the pass's end how many layers of blocks were
// projected and how long that took: the rest of the time is the pass's own.
//
// It owns the corrections and the beginnings of passes in flight. It requires that passes end in the order in
// which they began. It calls nobody. Invariants, which check_invariants() tests (core.h has all):
//   10. The time of each pass in flight is taken, from some time on that has come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "loci/base/clock.h"
#include "loci/compute/pass.h"
#include "loci/policy/correction.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/pass_budget.h"

namespace loci {

// Kinds of passes, each with a correction of its own, because the model errs differently for products of few
// rows, of many, and of many beside the attention of many sequences.
enum class PassKind : std::uint8_t { kDecodes, kPrompts, kBoth };
inline constexpr std::size_t kPassKinds = 3;

struct PassWork {
  PassKind kind = PassKind::kPrompts;
  PassRows rows;
};

// Thread-compatible; used by whoever steps the core.
class PassTimes {
 public:
  // A pass that decodes wait for may take this many times as long as the decodes alone, if that is more than
  // the limit. So if decodes take long (a large model, a slow machine), prompts get half of the time.
  static constexpr Nanos kDecodesShare = 2;

  // `costs` must outlive it. `limit`: the time limit of a pass that decodes wait for; kNever: none.
  PassTimes(const CostModel& costs, Nanos limit) : costs_(costs), limit_(limit) {}

  Nanos predict(const PassWork& work) const {
    return of(work.kind).apply(costs_.pass(work.rows.rows, work.rows.context));
  }
  // The time to compute tokens [begin, begin + count) of a prompt, as its share of a pass: of prompts, or,
  // while somebody always decodes, of both.
  Nanos compute(std::uint32_t begin, std::uint32_t count) const;
  // The time to project a block's hidden states inside a pass; 0: nobody measured it.
  Nanos project_block() const { return projecting_.apply(costs_.project_block()); }
  // How many tokens of prompts may join a pass of these decodes (policy/pass_budget.h), by the upper quartile
  // of corrections: one pass in four takes longer than the limit. By the median, half would.
  std::uint32_t fitting(const PassRows& decodes, std::span<const PromptRun> prompts,
                        std::uint32_t tokens_max) const;

  // A pass begins, after those in flight. `waits`: it may wait for loads.
  void begin(const PassWork& work, bool waits, Nanos now);
  struct End {
    Projected projected;       // what it made of hidden states
    std::uint32_t layers = 0;  // of the model
    bool is_whole = true;      // no span was given up
  };
  // The first pass in flight has ended.
  void end(const End& end, Nanos now);
  // Says that the costs have changed: corrections are forgotten, and passes in flight, which began under the
  // old costs, do not count.
  void costs_changed();

  // `passes`: how many are in flight. Aborts on a broken invariant. O(passes).
  void check_invariants(std::size_t passes, Nanos now) const;

 private:
  struct Flight {
    PassWork work;
    bool waits = false;
    Nanos begun_at = 0;
    bool outdated = false;  // it began under other costs
  };
  const Correction& of(PassKind kind) const { return corrections_[static_cast<std::size_t>(kind)]; }

  const CostModel& costs_;
  Nanos limit_;
  std::array<Correction, kPassKinds> corrections_;
  std::uint32_t beside_decodes_ = 0;  // passes of both since the last one of prompts
  Correction projecting_;
  std::deque<Flight> in_flight_;
};

}  // namespace loci
