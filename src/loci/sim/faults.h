// SPDX-License-Identifier: Apache-2.0
// What goes wrong on modelled hardware, and when. Each way of the links works for a while ("well"), then
// fails or is slow for a while ("ill"). Now and then the process ends. These times are drawn from a seed.
// From a given time on the disk may be slow, or not answer any more. Pure; thread-compatible.
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
  Nanos well = 0;        // mean time that a way stays well; 0: it always is
  Nanos ill = 0;         // mean time that it stays ill
  double slow = 1;       // an ill way is this many times slower; at least 1
  double fails = 0;      // share of the transfers that fail on an ill way, 0 to 1
  Nanos restarts = 0;    // mean time until the process ends and only the disk stays; 0: it never ends
  Nanos away = 0;        // mean time until the next process begins; 0: it begins at once
  double disk_lost = 0;  // share of the ends after which the disk is empty, 0 to 1
  Nanos disk_slow_at = kNever;
  double disk_speed = 1;      // the share of its speed that the disk has from then on; 0: it does not answer
  Nanos disk_limit = kNever;  // what a transfer from or to the disk may take before it is given up
};

// The disk_limit of a server (MoverOptions::load_limit, DiskStoreOptions::answer_limit).
inline constexpr Nanos kDiskLimit = 10 * kNanosPerSecond;

enum class DiskAfterDeath : std::uint8_t { kStays, kLost };

class Faults {
 public:
  explicit Faults(const FaultOptions& options);

  // Turns a way from well to ill or back, and returns how long that lasts. Each way begins well. Must not be
  // called if `well` is 0.
  Nanos turn(Links::Way way);
  // How long the way is well at first; kNever: always.
  Nanos first_turn(Links::Way way);
  // The share of the way's rate that it has now.
  double speed(Links::Way way, Nanos now) const;
  // The result of a transfer that ends now.
  MoveResult result_of(const Transfer& transfer);
  Nanos until_restart();  // kNever: no restart comes
  Nanos until_return();   // since the process's end
  DiskAfterDeath disk_after_death();
  // Whether a write that the process's end interrupts is there afterwards.
  bool is_written() { return random_.below(2) == 0; }

 private:
  Nanos lasting(Random& random, Nanos mean) const;

  FaultOptions options_;
  std::array<bool, Links::kWays> ill_{};
  std::array<Random, Links::kWays> ways_;  // one for each way, so that a turn of one does not change
                                           // another's times
  Random random_;
};

}  // namespace loci::sim
