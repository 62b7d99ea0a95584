#include "loci/compute/cpu/block_storage.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/backend.h"

namespace loci::cpu {

namespace {
constexpr std::uint32_t kFailed = 1u << 31;
}

BlockStorage::BlockStorage(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim)
    : layers_(layers),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      slice_bytes_(std::uint64_t{2} * kv_heads * head_dim * kBlockTokens * sizeof(std::uint16_t)) {}

Status BlockStorage::allocate(std::uint32_t count) {
  LOCI_CHECK(count_ == 0, "blocks are allocated once");
  LOCI_ASSIGN_OR_RETURN(blocks_,
                        Buffer::allocate(block_bytes() * count, fmt::format("a pool of {} blocks", count)));
  states_ = std::make_unique<std::atomic<std::uint32_t>[]>(count);
  for (std::uint32_t i = 0; i < count; ++i) states_[i].store(layers_, std::memory_order_relaxed);
  count_ = count;
  return {};
}

std::uint16_t* BlockStorage::slice(SlotId slot, std::uint32_t layer) const {
  return reinterpret_cast<std::uint16_t*>(blocks_.data() + slot.value * block_bytes() + layer * slice_bytes_);
}

std::uint16_t* BlockStorage::key(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const {
  return slice(slot, layer) + std::size_t{kv_head} * head_dim_ * kBlockTokens;
}

std::uint16_t* BlockStorage::value(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const {
  return key(slot, layer, kv_heads_ + kv_head);
}

void BlockStorage::copy_tokens(SlotId from, SlotId to, std::uint32_t layer, std::uint32_t tokens) const {
  for (std::uint32_t head = 0; head < kv_heads_; ++head) {
    const std::uint16_t* source = key(from, layer, head);
    std::uint16_t* target = key(to, layer, head);
    for (std::uint32_t dim = 0; dim < head_dim_; ++dim) {
      std::memcpy(target + dim * kBlockTokens, source + dim * kBlockTokens, tokens * sizeof *source);
    }
    std::memcpy(value(to, layer, head), value(from, layer, head),
                std::size_t{tokens} * head_dim_ * sizeof *source);
  }
}

std::atomic<std::uint32_t>& BlockStorage::state(SlotId slot) const {
  LOCI_CHECK(slot.value < count_, "a slot outside the pool");
  return states_[slot.value];
}

void BlockStorage::begin_fill(SlotId slot) { state(slot).store(0, std::memory_order_release); }

void BlockStorage::write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> bytes) {
  LOCI_CHECK(slot.value < count_ && layer < layers_ && bytes.size() == slice_bytes_, "not a layer's slice");
  std::memcpy(slice(slot, layer), bytes.data(), bytes.size());
}

void BlockStorage::read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> bytes) const {
  LOCI_CHECK(slot.value < count_ && layer < layers_ && bytes.size() == slice_bytes_, "not a layer's slice");
  std::memcpy(bytes.data(), slice(slot, layer), bytes.size());
}

void BlockStorage::layer_arrived(SlotId slot, std::uint32_t layer) {
  LOCI_CHECK(layer < layers_, "no such layer");
  state(slot).store(layer + 1, std::memory_order_release);
  state(slot).notify_all();
}

void BlockStorage::fill_failed(SlotId slot) {
  state(slot).fetch_or(kFailed, std::memory_order_release);
  state(slot).notify_all();
}

bool BlockStorage::await_layer(SlotId slot, std::uint32_t layer) const {
  const std::atomic<std::uint32_t>& word = state(slot);
  while (true) {
    const std::uint32_t now = word.load(std::memory_order_acquire);
    if ((now & ~kFailed) > layer) return true;
    if ((now & kFailed) != 0) return false;
    word.wait(now, std::memory_order_acquire);
  }
}

bool BlockStorage::is_whole(SlotId slot) const {
  return state(slot).load(std::memory_order_acquire) == layers_;
}

void BlockStorage::set_whole(SlotId slot) { state(slot).store(layers_, std::memory_order_release); }

}  // namespace loci::cpu
