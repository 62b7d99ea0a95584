#include "loci/compute/cpu/block_storage.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

#include "loci/base/units.h"

namespace loci {

Status BlockStorage::allocate(std::uint32_t count) {
  const std::uint64_t bytes = std::uint64_t{count} * block_bytes();
  // Fresh pages are zero: a stale NaN times a weight of zero would poison a sum.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return resource_exhausted(fmt::format("no memory for {} of state", format_bytes(bytes)), "device-memory");
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  memory_ = std::shared_ptr<std::uint16_t>(static_cast<std::uint16_t*>(data),
                                           [bytes](std::uint16_t* p) { munmap(p, bytes); });
  count_ = count;
  arrived_ = std::make_unique<std::atomic<std::uint32_t>[]>(count);
  for (std::uint32_t i = 0; i < count; ++i) arrived_[i].store(kWhole, std::memory_order_relaxed);
  return {};
}

void BlockStorage::copy(const BlockCopy& copy) {
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t head = 0; head < kv_heads_; ++head) {
      const std::uint16_t* from = keys(copy.from, layer, head);
      std::uint16_t* to = keys(copy.to, layer, head);
      for (std::uint32_t d = 0; d < head_dim_; ++d) {
        std::memcpy(to + d * kBlockTokens, from + d * kBlockTokens, copy.tokens * 2);
      }
      std::memcpy(values(copy.to, layer, head), values(copy.from, layer, head),
                  std::size_t{copy.tokens} * head_dim_ * 2);
    }
  }
}

void BlockStorage::layer_arrived(SlotId slot, std::uint32_t layer) {
  at(slot).store(layer + 1 == layers_ ? kWhole : layer + 1, std::memory_order_release);
  at(slot).notify_all();
}

void BlockStorage::fill_failed(SlotId slot) {
  at(slot).store(kFailed, std::memory_order_release);
  at(slot).notify_all();
}

bool BlockStorage::wait_for_layer(SlotId slot, std::uint32_t layer) {
  for (;;) {
    const std::uint32_t arrived = at(slot).load(std::memory_order_acquire);
    if (arrived == kFailed) return false;
    if (arrived > layer) return true;
    at(slot).wait(arrived, std::memory_order_acquire);
  }
}

}  // namespace loci
