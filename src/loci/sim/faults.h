// SPDX-License-Identifier: Apache-2.0
// What goes wrong on modelled hardware, and when: each way of the links is well for a while, then ill for a
// while, and the process ends now and then. Drawn from a seed. Pure; thread-compatible.
#pragma once

#include <array>
#include <cstdint>

#include "loci/base/clock.h"
#include "loci/base/random.h"
#include "loci/engine/core/plan.h"
#include "loci/sim/links.h"

namespace loci::sim {

struct FaultOptions {
  std::uint64_t seed = 0;
  Nanos well = 0;      // mean time that a way works as it should; 0: it always does
  Nanos ill = 0;       // mean time until it does again
  double slow = 1;     // an ill way is so many times slower, at least 1
  double fails = 0;    // and so many of the transfers that end on it fail, 0 to 1
  Nanos restarts = 0;  // mean time until the process ends, and leaves only the disk; 0: it never does
};

class Faults {
 public:
  explicit Faults(const FaultOptions& options);

  // The way, well at first, is now the other of well and ill; how long that lasts. Not where `well` is 0.
  Nanos turn(Links::Way way);
  // How long it is well at first, or kNever.
  Nanos first_turn(Links::Way way);
  // Of the way's rate.
  double speed(Links::Way way) const { return ill_[way] ? 1 / options_.slow : 1; }
  // What becomes of a transfer that ends now.
  MoveResult result_of(const Transfer& transfer);
  Nanos until_restart();  // kNever: none comes
  // Of what is being written when the process ends, whether it is there afterwards.
  bool is_written() { return random_.below(2) == 0; }

 private:
  Nanos lasting(Random& random, Nanos mean) const;

  FaultOptions options_;
  std::array<bool, Links::kWays> ill_{};
  std::array<Random, Links::kWays> ways_;  // each its own: a turn of one does not change another's times
  Random random_;
};

}  // namespace loci::sim
