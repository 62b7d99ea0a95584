// SPDX-License-Identifier: Apache-2.0
// The movers: they carry out the moves of the core's plans between the device's slots, the host tier's
// memory and the disk store, and say how each ended. They decide nothing.
//
// Loads arrive layer by layer, the first layers of all blocks of a load before the second ones, and go before
// saves (Pensieve §4.3.3, AttentionStore §3.2.1); a pass that reads a block waits in the backend for the
// layer it needs. A slice is verified before the device sees it.
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
  std::shared_ptr<PeerOutlet> peers;       // who gets what peers read; null: nobody reads
  // A load or prefetch that takes longer, its waiting included, is given up (kTooSlow).
  Nanos load_limit = 10 * kNanosPerSecond;
  // What is on its way to the disk, and as much to the shared store; one block at least.
  std::uint64_t save_buffer_bytes = std::uint64_t{64} << 20;
  // What is on its way to host memory, where the backend copies by itself; one block at least. By default 0.3
  // ms of a PCIe 5 link: a load that comes waits for no more.
  std::uint64_t save_copy_bytes = std::uint64_t{16} << 20;
  // Of blocks that are saved as hidden states; null: none are. It must outlive the mover.
  HiddenCaptures* captures = nullptr;
  // Asked before each slice that is copied out of the device or between it and host memory; it may wait, and
  // an error fails the move. So tests make links slow and broken (the disk store is an interface already).
  std::function<Status(const Move&, std::uint32_t layer)> before_slice;
};

struct MoverStats {
  struct Link {
    std::uint64_t moves_total = 0, bytes_total = 0, failures_total = 0;
    Nanos busy = 0;  // from a move's begin to its end, summed
  };
  // Between device and host (and inside the device: host_load), device and disk (host to disk: disk_save),
  // disk to host; shared store to device, device or host to shared store; device, host or disk to a peer.
  Link host_load, host_save, disk_load, disk_save, prefetch, shared_load, shared_save, peer_serve;
  std::uint64_t queued = 0;  // moves that were given and have not ended
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
  // Gives up what has not begun, waits for what has; nothing is told any more.
  virtual ~Mover() = default;

  // Takes over what a plan says. The device slots of loads are being filled (Backend::begin_fill) when it
  // returns, so a pass that follows waits for them.
  virtual void start(std::vector<Move> moves, std::vector<DiskNote> notes) = 0;
  // Asks the shared store, which there is; `answer` is called on a thread of the store's.
  virtual void ask(SharedAsk ask, std::function<void(SharedAnswer)> answer) = 0;
  // The shared store is to forget these blocks, as far as it is reached.
  virtual void forget_shared(const std::vector<ChainKey>& keys) = 0;
  // Hands what the disk holds to `found`, in batches, on a thread of its own (DiskStore::recover). Without a
  // disk: the last, empty batch at once.
  virtual void recover(std::function<void(Recovered)> found) = 0;
  virtual MoverStats stats() const = 0;
  virtual DiskStoreStats disk_stats() const = 0;
  virtual SharedStoreStats shared_stats() const = 0;
};

}  // namespace loci
