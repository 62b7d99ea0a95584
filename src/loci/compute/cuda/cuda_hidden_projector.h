// SPDX-License-Identifier: Apache-2.0
// Who projects hidden states (cuda_hidden_projection.h), and when. A pass projects the layers that it reads,
// on its stream (PassProjector). What is saved before a pass has read it, or must go to another position, is
// projected by the thread that moves it (MoverProjector). A layer of a block is projected by one of them:
// BlockPool::claim_hidden().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/cuda_hidden_projection.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/pass.h"

namespace loci::cuda {

// What one pass projects, and how long the device takes for it. Thread-compatible.
class PassProjections {
 public:
  void clear() { slices_ = used_ = last_ = 0; }
  // Called before and after a layer's projections are queued.
  void begin(const Device& device, Stream& stream);
  void end(Stream& stream, std::uint64_t slices, Ticket ticket);

  // When the pass has ended:
  Projected projected() const;
  Ticket last() const { return last_; }  // the ticket behind them; 0: there are none

 private:
  std::uint64_t slices_ = 0;
  std::size_t used_ = 0;
  std::vector<std::pair<Event, Event>> times_;  // timed; [used_]
  Ticket last_ = 0;
};

// Projects on the stream of passes. For the thread that issues them.
class PassProjector {
 public:
  // The pool must outlive it.
  PassProjector(const Device& device, BlockPool& blocks, std::unique_ptr<HiddenProjection> projection)
      : device_(device), blocks_(blocks), projection_(std::move(projection)) {}

  // Queues the projection of the layer in those of the slots that hold hidden states, and of the layers
  // before it; a slot may be named twice. `stream` waits for the layer's copies (BlockPool::wait_layer()).
  // False: the device refused some of it, which `stream` notes. Those slots hold hidden states as before.
  bool project(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream, PassProjections& pass);

 private:
  // Of slots whose layer was claimed.
  bool queue(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream, PassProjections& pass);

  const Device& device_;
  BlockPool& blocks_;
  const std::unique_ptr<HiddenProjection> projection_;
  std::vector<SlotId> claimed_;
  std::vector<HiddenBlock> to_project_;
};

// Projects for movers, a layer of a block at a time, on a stream of its own, and waits for it. Thread-safe.
class MoverProjector {
 public:
  // All references must outlive it. Errors: kResourceExhausted.
  static Result<std::unique_ptr<MoverProjector>> make(const ModelSpec& spec, const CudaWeights& weights,
                                                      const Device& device, BlockPool& blocks,
                                                      ElementType element);

  // Turns the slot's layers up to this one that came as hidden states into slices.
  void project_up_to(SlotId slot, std::uint32_t layer) EXCLUDES(mutex_);
  // Backend::project().
  void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
               std::span<std::byte> slice) EXCLUDES(mutex_);

 private:
  MoverProjector(const Device& device, BlockPool& blocks, std::unique_ptr<Products> products)
      : device_(device), blocks_(blocks), products_(std::move(products)), stream_(device) {}
  // Waits for what is queued. (The kernels are those of passes, which the device takes; a device that refuses
  // them here cannot say what it saved, and counts as lost.)
  void finish() REQUIRES(mutex_);

  const Device& device_;
  BlockPool& blocks_;
  const std::unique_ptr<Products> products_;  // own kernels: of few rows they are as fast as any
  Mutex mutex_;
  Stream stream_ GUARDED_BY(mutex_);
  std::unique_ptr<HiddenProjection> projection_ GUARDED_BY(mutex_);
  // One layer of one block, for project(): in device memory, as a pool of one slot; and in pinned memory.
  Memory slice_ GUARDED_BY(mutex_), staged_ GUARDED_BY(mutex_);
};

}  // namespace loci::cuda
