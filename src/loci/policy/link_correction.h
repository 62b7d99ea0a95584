// SPDX-License-Identifier: Apache-2.0
// Corrects predictions of how long loads over a link take, by what loads took. Unlike correction.h it learns
// two numbers: what each load takes beside its bytes (the *overhead*: threads that wake one another, first
// reads), and how long bytes take, as a multiple of what the costs say (the *ratio*).
//
// An example: the costs say 0.2 ms and 1 ms a MB. A turn comes back by two loads: the last block, of 1 MB,
// takes 9 ms; then 30 MB take 38 ms.
//
//     predicted     took   overhead  ratio
//     0.2 + 1        9      7.9       1.1      a short load says little about the rate
//     0.2 + 30      38      8         1        a line through both: loads of 30 MB will take 38 ms
//
// A single ratio would be 7.5 after the first load, and the second predicted to take 226 ms. Later it would
// be that of short loads or that of long ones, whichever were more.
//
// Of the last observations, sorted by their bytes, the third with the fewest and the third with the most have
// a median each. The line through these two (Tukey's resistant line) is what is learnt, within
//     overhead >= 0,     ratio >= a quarter of what the long loads took over what was predicted for them.
// If the long ones are not twice as long as the short ones there is no line to see. Then the median of all is
// explained: what it took more than predicted is divided between both; the longer the load is beside kShort,
// the less of it is overhead.
//
// Integers throughout: the same observations give the same corrections everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// What the costs say of a load.
struct LoadTime {
  Nanos latency = 0;  // whatever is loaded
  Nanos moving = 0;   // of the bytes
};

// Thread-compatible. observe() and relax() cost O(kObservations · log(kObservations)), apply() O(1).
class LinkCorrection {
 public:
  static constexpr std::size_t kObservations = 9;  // that are remembered
  static constexpr Nanos kShort = 10 * kNanosPerMilli;

  // A load took `took`. Where nothing was predicted (0) nothing is learnt. The latency is the same for all
  // loads over the link.
  void observe(LoadTime predicted, Nanos took);
  // Halves the correction of what took longer than predicted. A link that was slow for a while may not be
  // used any more, and so would never be seen to be fast again.
  void relax();
  // The predicted time, corrected; at most kCostMax.
  Nanos apply(LoadTime predicted) const;

 private:
  struct Observation {
    Nanos moving = 0;  // predicted
    Nanos took = 0;
  };
  void fit();
  void explain(Observation one);

  std::array<Observation, kObservations> ring_{};
  std::size_t seen_ = 0;  // observations, ever
  Nanos latency_ = 0;     // predicted
  Nanos overhead_ = 0;
  std::int64_t ratio_ = 0;  // in units of Correction::kOne
};

}  // namespace loci
