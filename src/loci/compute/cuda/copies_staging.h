// SPDX-License-Identifier: Apache-2.0
// A ring of pinned buffers for bytes in memory that the device cannot access by itself: a slice that was read
// from the disk, or whose keys were rotated. Bounded: if no buffer is free, the caller waits for the copies
// of the oldest one.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/compute/cuda/copies.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

class StagingRing {
 public:
  // `copies` copies the buffers; it must outlive the ring.
  explicit StagingRing(CopyStream& copies) : copies_(copies) {}

  // Called once, before anything else. Errors: kResourceExhausted.
  Status allocate(const Device& device, std::uint64_t buffer_bytes, std::uint32_t buffers);

  // A buffer that nobody uses. Sleeps until there is one.
  std::byte* take();
  // Gives a buffer back; `ticket`: of the copy that still uses it.
  void give(std::byte* buffer, Ticket ticket);

 private:
  CopyStream& copies_;
  Memory memory_;
  Mutex mutex_;
  Condition given_;
  std::deque<std::pair<std::byte*, Ticket>> buffers_ GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace loci::cuda
