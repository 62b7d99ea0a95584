// The pool of blocks in memory and what has arrived of each. A block is
//   [layer][K: kv head, dim, token | V: kv head, token, dim], f16:
// 32 tokens' values of one dimension of K are one cache line, which attention reads as a vector.
//
// Movers (begin_fill() .. fill_failed()) may be any threads; they and the running pass meet at one
// atomic word a slot: bytes written before layer_arrived() are seen after await_layer(). What happens to
// a slot that nobody fills is ordered by the pass alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/cpu/buffer.h"

namespace loci::cpu {

class BlockStorage {
 public:
  BlockStorage(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim);

  // Zeroed. Errors: kResourceExhausted.
  Status allocate(std::uint32_t count);

  std::uint32_t count() const { return count_; }
  std::uint64_t slice_bytes() const { return slice_bytes_; }
  std::uint64_t block_bytes() const { return slice_bytes_ * layers_; }

  // [head_dim][32] of one kv head; the value [32][head_dim].
  std::uint16_t* key(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const;
  std::uint16_t* value(SlotId slot, std::uint32_t layer, std::uint32_t kv_head) const;

  // Copies one layer of the first `tokens` tokens.
  void copy_tokens(SlotId from, SlotId to, std::uint32_t layer, std::uint32_t tokens) const;

  void begin_fill(SlotId slot);
  void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice);
  void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const;
  void layer_arrived(SlotId slot, std::uint32_t layer);
  void fill_failed(SlotId slot);

  // Sleeps until `layer` of the slot has arrived; false: it will not.
  bool await_layer(SlotId slot, std::uint32_t layer) const;
  bool is_whole(SlotId slot) const;
  // The pass writes the slot from its beginning: an earlier fill and its failure are history.
  void set_whole(SlotId slot);

 private:
  std::uint16_t* slice(SlotId slot, std::uint32_t layer) const;
  std::atomic<std::uint32_t>& state(SlotId slot) const;

  const std::uint32_t layers_;
  const std::uint32_t kv_heads_;
  const std::uint32_t head_dim_;
  const std::uint64_t slice_bytes_;
  std::uint32_t count_ = 0;
  Buffer blocks_;
  // Layers that have arrived, and kFailed.
  std::unique_ptr<std::atomic<std::uint32_t>[]> states_;
};

}  // namespace loci::cpu
