// SPDX-License-Identifier: Apache-2.0
// The pass that runs on modelled hardware: which blocks that it reads are still being loaded, which of its
// spans have failed, and when it ends. The end is known once every load that it waits for has come, has
// failed or is given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"
#include "loci/sim/hardware.h"
#include "loci/sim/links.h"

namespace loci::sim {

// Thread-compatible. Transfers are named by the number of their first move. Each call costs O(transfers that
// it reads).
class RunningPass {
 public:
  // `done`: the event of its end, if everything that it reads comes.
  RunningPass(PassDone done, PassTime time, Nanos began, std::uint32_t layers);

  // Says that the span reads blocks of this transfer, which is still moving.
  void read(std::size_t span, std::uint64_t transfer);
  // True: blocks that it reads are still being loaded.
  bool waits() const { return !awaited_.empty(); }

  // Says that the transfer has come. True: it was the last one that the pass waited for.
  bool arrived(const Transfer& transfer);
  // Says that the transfer has failed, and with it the spans that read it. True: it was the last one that the
  // pass waited for.
  bool failed(const Transfer& transfer);
  // Stops waiting: spans that read blocks which have not come have failed.
  void give_up();

  // When it ends, not before `now`. It must not wait for anything.
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
  Nanos ready_ = 0;                                // it cannot end before this, by the transfers that have
                                                   // come so far
  std::vector<std::uint64_t> awaited_;             // each once
  std::vector<std::vector<std::uint64_t>> reads_;  // by span
  std::uint64_t failed_spans_ = 0;
};

}  // namespace loci::sim
