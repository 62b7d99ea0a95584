// SPDX-License-Identifier: Apache-2.0
// How much of the machine's memory state may keep, on a machine that others use too. Pure.
//
// A sixteenth of what the machine (or the control group) has stays free of state. So of 16 GiB, with 4 GiB of
// state and 3 GiB available, state may keep 4 + 3 - 1 = 6 GiB. When other programs take 4 GiB, one of which
// the system gains by dropping cached files, 0 are available: state may keep 3, and gives the fourth back.
// While programs stand still for want of memory it gives an eighth of what it has at each look, down to an
// eighth of its pool, whatever is said to be available; stalls of the whole machine count only where less
// than an eighth of its memory is available, as they may be those of a group under a limit of its own. After
// a while without a shortage it takes memory again, half of what is available at each look. It does not take
// less than a 64th of the pool at a time, unless then the whole pool has room: so near its limit the room
// does not follow every change of what others use.
#pragma once

#include <cstdint>

namespace loci {

struct MemoryLook {
  std::uint64_t total_bytes = 0;       // of the machine or of what limits its use
  std::uint64_t available_bytes = 0;   // to anybody, without swapping
  std::uint64_t used_bytes = 0;        // by state
  std::uint32_t stalled_permille = 0;  // of the time since the last look, that some program stood still
  bool stalls_are_own = true;          // of this process's control group, not of the whole machine
};

// Thread-compatible. O(1) a call.
class MemoryShare {
 public:
  // `pool_bytes`: the most that state may have.
  explicit MemoryShare(std::uint64_t pool_bytes) : pool_bytes_(pool_bytes), room_(pool_bytes) {}

  // What state may keep from now on. Call it at even intervals: its rules count looks, not time.
  std::uint64_t look(const MemoryLook& now);

 private:
  std::uint64_t pool_bytes_;
  std::uint64_t room_;
  std::uint32_t calm_looks_ = 0;  // without shortage, since the last one
};

}  // namespace loci
