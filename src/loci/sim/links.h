// SPDX-License-Identifier: Apache-2.0
// Modelled links in virtual time. The link to host memory moves both ways at once, each then slower. The disk
// reads and writes at once, or does one thing at a time if reads and writes share it. On each way one
// transfer moves at a time.
//
//   loads       disk or host memory to the device; first on the way or disk that they wait for
//   prefetches  disk to host memory
//   saves       all else; a save to host memory does not begin while a load moves
//   peers       what peers get: read from the disk, where it is there, like a prefetch; then out to the
//   network
//
// A transfer that has begun is not interrupted, unless all transfers are dropped. A way's rate may change
// while it moves. Its layers move in order, so of a transfer that moves from t0 to t1 at one rate, layer k of
// n (from 0) is there at t0 + (t1 - t0)(k + 1) / n.
//
// Thread-compatible. Deterministic: of equal transfers the one that was added first goes first.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/tier.h"
#include "loci/sim/hardware.h"

namespace loci::sim {

// Moves that travel together and end together.
struct Transfer {
  Tier from = Tier::kHost;
  Tier to = Tier::kDevice;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> moves;  // the caller's names for them
  // Set by Links:
  Nanos began = 0;  // when it got its way
  Nanos ended = 0;
};

class Links {
 public:
  enum Way : std::uint8_t { kHostLoad, kHostSave, kDiskRead, kDiskWrite, kNetwork, kWays };
  static Way way_of(const Transfer& transfer);
  explicit Links(const Machine& machine);

  // `now` must not be earlier than in any call before, nor later than next().
  void add(Nanos now, Transfer transfer);
  // When the next transfer ends if nothing is added; absent: none moves.
  std::optional<Nanos> next() const;
  // The transfers that end at `now`, which next() gave.
  std::vector<Transfer> end(Nanos now);
  std::size_t in_flight() const;
  // From now on the way moves at this share of its rate, above 0.
  void set_speed(Nanos now, Way way, double speed);
  // Ends and returns all transfers that move or wait; those that moved come first.
  std::vector<Transfer> drop(Nanos now);

 private:
  struct Moving {
    Transfer transfer;
    double left = 0;  // nanoseconds of work at the way's full rate
  };
  struct Lane {
    LinkCost cost;
    std::array<std::deque<Transfer>, 2> waiting;  // those that go first, and the rest
    std::optional<Moving> moving;
    bool has_waiting() const { return !waiting[0].empty() || !waiting[1].empty(); }
  };
  double rate(Way way) const;
  void advance(Nanos now);
  void begin(Nanos now);
  bool may_begin(Way way) const;

  std::array<Lane, kWays> lanes_;
  std::array<double, kWays> speeds_;
  double duplex_ = 1;
  bool disk_shared_ = true;
  Nanos now_ = 0;
};

}  // namespace loci::sim
