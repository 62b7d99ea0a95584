// SPDX-License-Identifier: Apache-2.0
// Whether a stop waits for a disk or store that does not answer: nothing but moves of state is left, and none
// of them ends. A stop that saves much has moves left all the time, of which some end.
//
//     t = 0 s    900 moves, no requests     0
//     t = 1 s    650 moves                  0
//     t = 2 s    650 moves                  0
//     t = 3 s    650 moves                  650: none has ended for kSaysAfter
#pragma once

#include <cstdint>

#include "loci/base/clock.h"
#include "loci/engine/mover/mover.h"

namespace loci {

// One thread's.
class UnansweredMoves {
 public:
  static constexpr Nanos kSaysAfter = 2 * kNanosPerSecond;

  // How many there are; 0 while requests are left, or some move has ended a moment ago. What peers read does
  // not count: a peer that takes nothing is no disk. To be called many times within kSaysAfter.
  std::uint64_t look(bool has_requests, const MoverStats& stats, Nanos now) {
    const std::uint64_t moves = stats.queued - stats.serves_queued;
    std::uint64_t ended = 0;
    for (const MoverStats::Link* link :
         {&stats.host_load, &stats.host_save, &stats.disk_load, &stats.disk_save, &stats.prefetch,
          &stats.shared_load, &stats.shared_save})
      ended += link->moves_total;
    if (has_requests || moves == 0 || ended != ended_) since_ = now;
    ended_ = ended;
    return now - since_ >= kSaysAfter ? moves : 0;
  }

 private:
  std::uint64_t ended_ = UINT64_MAX;  // moves, at the last look
  Nanos since_ = 0;
};

}  // namespace loci
