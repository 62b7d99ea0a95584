// SPDX-License-Identifier: Apache-2.0
// The pass that runs on modelled hardware: what it reads that is still on its way, which of its spans have
// failed, and when it ends. That is known once all that it reads has come, has failed or is given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"
#include "loci/sim/hardware.h"
#include "loci/sim/links.h"

namespace loci::sim {

// Thread-compatible. Transfers go by the number of their first move. O(transfers that it reads) a call.
class RunningPass {
 public:
  // `done`: what is told when it has ended, if all that it reads comes.
  RunningPass(PassDone done, PassTime time, Nanos began, std::uint32_t layers);

  // The span reads what this transfer brings, which is on its way.
  void read(std::size_t span, std::uint64_t transfer);
  // Something that it reads is on its way.
  bool waits() const { return !awaited_.empty(); }

  // The transfer has come. True: it was the last that was waited for.
  bool arrived(const Transfer& transfer);
  // The transfer has failed, and with it the spans that read it; true: it was the last that was waited for.
  bool failed(const Transfer& transfer);
  // Nothing is waited for any more: the spans that read what has not come have failed.
  void give_up();

  // When it ends, as nothing is waited for; not before `now`.
  Nanos ends(Nanos now) const;
  const PassDone& done() const { return done_; }
  const PassTime& time() const { return time_; }
  Nanos began() const { return began_; }
  std::uint64_t failed_spans() const { return failed_spans_; }

 private:
  void poison(std::uint64_t transfer);

  PassDone done_;
  PassTime time_;
  Nanos began_;
  Nanos layers_;
  Nanos ready_ = 0;                                // not before, by what has come so far
  std::vector<std::uint64_t> awaited_;             // each once
  std::vector<std::vector<std::uint64_t>> reads_;  // by span
  std::uint64_t failed_spans_ = 0;
};

}  // namespace loci::sim
