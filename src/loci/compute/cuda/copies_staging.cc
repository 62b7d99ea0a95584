// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/copies_staging.h"

namespace loci::cuda {

Status StagingRing::allocate(const Device& device, std::uint64_t buffer_bytes, std::uint32_t buffers) {
  LOCI_ASSIGN_OR_RETURN(
      memory_, Memory::allocate(device, MemoryKind::kPinned, buffer_bytes * buffers, "buffers of copies"));
  const MutexLock lock(mutex_);
  for (std::uint32_t i = 0; i < buffers; ++i) buffers_.emplace_back(memory_.data() + i * buffer_bytes, 0);
  return {};
}

std::byte* StagingRing::take() {
  std::pair<std::byte*, Ticket> oldest;
  {
    MutexLock lock(mutex_);
    given_.wait(lock, [&]() REQUIRES(mutex_) { return !buffers_.empty(); });
    oldest = buffers_.front();
    buffers_.pop_front();
  }
  copies_.tickets().wait(oldest.second);
  return oldest.first;
}

void StagingRing::give(std::byte* buffer, Ticket ticket) {
  {
    const MutexLock lock(mutex_);
    buffers_.emplace_back(buffer, ticket);
  }
  given_.notify_one();
}

}  // namespace loci::cuda
