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
// A transfer from or to the disk is given up when it takes longer than the disk's limit. As in the disk
// store's queue (memory/disk/disk_queue.h), three blocks in a row whose reads were given up close the disk:
// its reads are refused at once, but for one in each limit, until it has answered a read or a write. A
// transfer's blocks are answered in order, at equal distances. Of those that had begun and were given up the
// disk answers one late, on each way the first that would have ended; it takes nothing of the way's rate.
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
  Nanos added = 0;
  Nanos began = 0;  // when it got its way; of one that was given up, when it was added
  Nanos ended = 0;
  bool given_up = false;
  // Of what has come from a peer in rounds (PeerRounds): how many, and when the first of them had come. 0:
  // layer by layer.
  std::uint32_t rounds = 0;
  Nanos first_round = 0;
};

class Links {
 public:
  enum Way : std::uint8_t { kHostLoad, kHostSave, kDiskRead, kDiskWrite, kNetwork, kWays };
  static Way way_of(const Transfer& transfer);
  // `disk_limit`: what a transfer from or to the disk may take, with its waiting.
  explicit Links(const Machine& machine, Nanos disk_limit = kNever);

  // `now` must not be earlier than in any call before, nor later than next().
  void add(Nanos now, Transfer transfer);
  // When the next transfer ends if nothing is added; absent: none does.
  std::optional<Nanos> next() const;
  // The transfers that end at `now`, which next() gave.
  std::vector<Transfer> end(Nanos now);
  std::size_t in_flight() const;
  // What moves on the way; null: nothing.
  const Transfer* moving(Way way) const;
  // How many of so many layers it has brought by `now`, which is not later than next(), and when it brings
  // the next one at the present rates; kNever: not before it has ended. Something must move.
  struct Layers {
    std::uint32_t brought = 0;
    Nanos next = kNever;
  };
  Layers layers(Way way, std::uint32_t count, Nanos now) const;
  // From now on the way moves at this share of its rate; 0: nothing moves on it.
  void set_speed(Nanos now, Way way, double speed);
  // Ends and returns all transfers that move or wait; those that moved come first.
  std::vector<Transfer> drop(Nanos now);

 private:
  struct Work {
    double left = 0;  // nanoseconds at the way's full rate
    double all = 0;
    std::size_t blocks = 1;
    bool is_over() const;
    std::size_t answered() const;  // of the blocks
    bool advance(double done);     // true: it has answered another one
  };
  struct Moving {
    Transfer transfer;
    Work work;
  };
  struct Lane {
    LinkCost cost;
    std::array<std::deque<Transfer>, 2> waiting;  // those that go first, and the rest
    std::optional<Moving> moving;
    std::optional<Work> late;  // was given up, and has not been answered
    bool has_waiting() const { return !waiting[0].empty() || !waiting[1].empty(); }
  };
  double rate(Way way) const;
  void advance(Nanos now);
  void begin(Nanos now);
  bool may_begin(Way way) const;
  static bool is_of_disk(Way way) { return way == kDiskRead || way == kDiskWrite; }
  bool has_limit(Way way) const { return disk_limit_ != kNever && is_of_disk(way); }
  bool disk_is_closed() const;
  Nanos limit_of(const Transfer& transfer) const { return transfer.added + disk_limit_; }
  std::optional<Nanos> first_limit(Way way) const;
  bool refuses(const Transfer& transfer);
  void give_up_late(Way way, std::vector<Transfer>& ended);

  std::array<Lane, kWays> lanes_;
  std::array<double, kWays> speeds_;
  double duplex_ = 1;
  bool disk_shared_ = true;
  Nanos disk_limit_ = kNever;
  std::size_t disk_unanswered_ = 0;  // blocks in a row whose reads were given up
  Nanos disk_tried_ = 0;             // when the disk was closed, or a read was let through since
  std::vector<Transfer> refused_;    // that end now
  Nanos now_ = 0;
};

}  // namespace loci::sim
