// SPDX-License-Identifier: Apache-2.0
// The movers carry out the moves of the core's plans between the device's slots, the host tier's memory, the
// disk store and the shared store. They report how each move ended, and decide nothing.
//
// Loads arrive layer by layer, the first layers of all blocks of a load before their second layers, and go
// before saves (Pensieve §4.3.3, AttentionStore §3.2.1). A pass that reads a block waits in the backend for
// the layer that it needs. A slice is verified before the device sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/mover/hidden_captures.h"
#include "loci/engine/mover/peer_outlet.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct MoverOptions {
  std::vector<std::uint32_t> host_blocks;  // slots of the host tier, by group; empty: no host tier
  std::unique_ptr<DiskStore> disk;         // null: none
  std::unique_ptr<SharedStore> shared;     // null: none
  std::shared_ptr<PeerOutlet> peers;       // receives the blocks that peers read; null: peers read nothing
  // A load from any tier or a prefetch that takes longer than this and than Move::time_limit, including its
  // waiting, is given up (kTooSlow).
  Nanos load_limit = 10 * kNanosPerSecond;
  // The most bytes in flight to the disk; as many again to the shared store. At least one block.
  std::uint64_t save_buffer_bytes = std::uint64_t{64} << 20;
  // The most bytes in flight to host memory, for a backend whose copies go on after their calls. At least one
  // block. By default 0.3 ms of a PCIe 5 link, so that a load waits no longer.
  std::uint64_t save_copy_bytes = std::uint64_t{16} << 20;
  // The captures of blocks that are saved as hidden states; null: none are. It must outlive the mover.
  HiddenCaptures* captures = nullptr;
  // Called before each slice is copied out of the device or between it and host memory. It may wait, and an
  // error fails the move. With it tests make links slow and broken; for the disk they have a fake store.
  std::function<Status(const Move&, std::uint32_t layer)> before_slice;
};

struct MoverStats {
  struct Link {
    std::uint64_t moves_total = 0, bytes_total = 0, failures_total = 0;
    Nanos busy = 0;  // time from a move's beginning to its end, summed up
  };
  // host_load also counts copies inside the device, disk_save also host to disk. prefetch is disk to host,
  // shared_save device or host to the shared store, peer_serve any tier to a peer.
  Link host_load, host_save, disk_load, disk_save, prefetch, shared_load, shared_save, peer_serve;
  std::uint64_t queued = 0;         // moves that were started and have not ended
  std::uint64_t serves_queued = 0;  // of these, those to peers
};

// Thread-safe.
class Mover {
 public:
  // Called on a mover's thread; must not block. Every move of start() is named in exactly one call.
  using Ended = std::function<void(MovesEnded)>;

  // Allocates the host tier. `backend` and `clock` must outlive it. Errors: kResourceExhausted naming
  // host_memory.
  static Result<std::unique_ptr<Mover>> make(MoverOptions options, Backend& backend, const Clock& clock,
                                             Ended ended);
  // Drops moves that have not begun and waits for those that have. All changes of records reach the disk
  // store, which also forgets what is in the slots of saves that are dropped. `Ended` is not called any more.
  virtual ~Mover() = default;

  // Takes over a plan's moves and changes of records. When it returns, Backend::begin_fill() has been called
  // for the device slots of all loads, so a later pass waits for them.
  virtual void start(std::vector<Move> moves, std::vector<RecordChange> record_changes) = 0;
  // Asks the shared store, which must exist; `answer` is called on one of the store's threads.
  virtual void ask(SharedAsk ask, std::function<void(SharedAnswer)> answer) = 0;
  // Deletes these blocks from the shared store, if it can be reached.
  virtual void forget_shared(const std::vector<ChainKey>& keys) = 0;
  // Passes the disk's entries to `found`, in batches, on a thread of its own (DiskStore::recover). Without a
  // disk it passes the last, empty batch at once.
  virtual void recover(std::function<void(Recovered)> found) = 0;
  virtual MoverStats stats() const = 0;
  virtual DiskStoreStats disk_stats() const = 0;
  virtual SharedStoreStats shared_stats() const = 0;
};

}  // namespace loci
