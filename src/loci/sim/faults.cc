// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/faults.h"

#include <algorithm>
#include <cmath>

namespace loci::sim {

Faults::Faults(const FaultOptions& options)
    : options_(options),
      ways_{Random(mix64(options.seed) ^ 1), Random(mix64(options.seed) ^ 2), Random(mix64(options.seed) ^ 3),
            Random(mix64(options.seed) ^ 4), Random(mix64(options.seed) ^ 5)},
      random_(mix64(options.seed)) {}

Nanos Faults::lasting(Random& random, Nanos mean) const {
  const double drawn = -std::log(1 - random.unit()) * static_cast<double>(mean);
  return std::max<Nanos>(1, static_cast<Nanos>(drawn));
}

Nanos Faults::first_turn(Links::Way way) {
  return options_.well == 0 ? kNever : lasting(ways_[way], options_.well);
}

Nanos Faults::turn(Links::Way way) {
  ill_[way] = !ill_[way];
  return lasting(ways_[way], ill_[way] ? options_.ill : options_.well);
}

double Faults::speed(Links::Way way, Nanos now) const {
  const bool of_disk = way == Links::kDiskRead || way == Links::kDiskWrite;
  return (ill_[way] ? 1 / options_.slow : 1) *
         (of_disk && now >= options_.disk_slow_at ? options_.disk_speed : 1);
}

MoveResult Faults::result_of(const Transfer& transfer) {
  if (transfer.given_up) return MoveResult::kTooSlow;
  if (!ill_[Links::way_of(transfer)] || random_.unit() >= options_.fails) return MoveResult::kDone;
  constexpr std::array kResults = {MoveResult::kFailed, MoveResult::kTooSlow, MoveResult::kDamaged};
  return kResults[random_.below(transfer.from == Tier::kDisk ? 3 : 2)];  // what was read is checked
}

Nanos Faults::until_restart() {
  return options_.restarts == 0 ? kNever : lasting(random_, options_.restarts);
}

Nanos Faults::until_return() { return options_.away == 0 ? 0 : lasting(random_, options_.away); }

DiskAfterDeath Faults::disk_after_death() {
  if (options_.disk_lost == 0) return DiskAfterDeath::kStays;
  return random_.unit() < options_.disk_lost ? DiskAfterDeath::kLost : DiskAfterDeath::kStays;
}

}  // namespace loci::sim
