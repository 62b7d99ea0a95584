// The memory of the CPU backend's blocks, and which of their layers have arrived.
//
// A block is [layer][K: kv head, dim, token | V: kv head, token, dim] in f16: 32 keys' values of one
// dimension are one cache line, and one layer is one contiguous slice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"

namespace loci {

// Thread-safe where the Backend's movers' calls are.
class BlockStorage {
 public:
  BlockStorage(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim)
      : layers_(layers), kv_heads_(kv_heads), head_dim_(head_dim) {}

  std::uint64_t slice_bytes() const { return std::uint64_t{2} * kv_heads_ * head_dim_ * kBlockTokens * 2; }
  std::uint64_t block_bytes() const { return slice_bytes() * layers_; }
  Status allocate(std::uint32_t count);
  std::uint32_t count() const { return count_; }

  std::uint16_t* keys(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const {
    return slice(slot, layer) + std::size_t{kv_head} * head_dim_ * kBlockTokens;
  }
  std::uint16_t* values(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const {
    return slice(slot, layer) + (std::size_t{kv_heads_} + kv_head) * head_dim_ * kBlockTokens;
  }
  std::span<std::byte> slice_of(SlotId slot, std::uint32_t layer) const {
    return {reinterpret_cast<std::byte*>(slice(slot, layer)), slice_bytes()};
  }
  void copy(const BlockCopy& copy);

  void begin_fill(SlotId slot) { at(slot).store(0, std::memory_order_release); }
  void layer_arrived(SlotId slot, std::uint32_t layer);
  void fill_failed(SlotId slot);
  // Waits until `layer` of `slot` is there. False: it will not be.
  bool wait_for_layer(SlotId slot, std::uint32_t layer);

 private:
  static constexpr std::uint32_t kWhole = 0xffffffff;   // nothing is being filled
  static constexpr std::uint32_t kFailed = 0xfffffffe;

  std::atomic<std::uint32_t>& at(SlotId slot) {
    LOCI_CHECK(slot.value < count_, "a slot of the pool");
    return arrived_[slot.value];
  }
  std::uint16_t* slice(SlotId slot, std::uint32_t layer) const {
    return memory_.get() + (std::size_t{slot.value} * layers_ + layer) * (slice_bytes() / 2);
  }

  const std::uint32_t layers_, kv_heads_, head_dim_;
  std::uint32_t count_ = 0;
  std::shared_ptr<std::uint16_t> memory_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> arrived_;  // layers that are there, or the above
};

}  // namespace loci
