// SPDX-License-Identifier: Apache-2.0
// The pass that runs on modelled hardware: which blocks that it reads are still being loaded, which of its
// spans have failed, what it projects of hidden states, and when it ends. The end is known once every load
// that it waits for has come, has failed or is given up.
//
// An example, of two layers that take 4 ms each, and 3 ms each to project what came: its load begins with the
// pass, and brings a layer in 6 ms.
//
//     load      |--1---|--2---|
//     compute   .      |p1||-1-||p2||-2-|      6 + 2 * (3 + 4) = 20, more than 12 + 3 + 4
//
// With a link that brings a layer in 20 ms the last layer decides: 40 + 3 + 4.
//
// What comes from peers in rounds is as if it had so many layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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
  // What hidden states cost it.
  struct Hidden {
    Nanos block = 0;    // projecting one block's
    Nanos capture = 0;  // copying out its own: it takes no less
  };

  // `done`: the event of its end, if everything that it reads comes.
  RunningPass(PassDone done, PassTime time, Hidden hidden, Nanos began, std::uint32_t layers);

  // Says that the span reads blocks of this transfer, which is still moving.
  void read(std::size_t span, std::uint64_t transfer);
  // Says that it reads one more block whose hidden states have come, and projects it.
  void project() { ++projected_; }
  // The processor does something else for so long.
  void delay(Nanos time) { delay_ += time; }
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
  // The same, with what it has projected.
  PassDone take_done() &&;
  const PassTime& time() const { return time_; }
  Nanos began() const { return began_; }
  std::uint64_t projected_blocks() const { return projected_; }
  Nanos projecting() const { return hidden_.block * static_cast<Nanos>(projected_); }
  // What it takes if it waits for nothing.
  Nanos lasts() const { return std::max(time_.total() + projecting() + delay_, hidden_.capture); }
  Nanos delay() const { return delay_; }
  std::uint64_t failed_spans() const { return failed_spans_; }

 private:
  void poison(std::uint64_t transfer);

  PassDone done_;
  PassTime time_;
  Hidden hidden_;
  Nanos began_;
  Nanos layers_;
  // Of the transfers that have come so far, when the last of them had brought its first layer, and all.
  std::optional<Nanos> first_layer_, last_layer_;
  std::optional<Nanos> last_round_;  // likewise, of those that came in rounds
  Nanos rounds_ = 1;                 // the fewest of them
  Nanos delay_ = 0;
  std::uint64_t projected_ = 0;                    // blocks
  std::vector<std::uint64_t> awaited_;             // each once
  std::vector<std::vector<std::uint64_t>> reads_;  // by span
  std::uint64_t failed_spans_ = 0;
};

}  // namespace loci::sim
