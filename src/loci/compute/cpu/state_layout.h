// SPDX-License-Identifier: Apache-2.0
// How one layer of a block lies in memory, by the type of its state. A slice is
//   f16  [K: kv head, dim, token | V: kv head, token, dim]: 32 tokens' values of one dimension of K are one
//        cache line, which attention reads as a vector
//   q8   [K: kv head, half of the tokens, dim / 4, token, 4 dims | V: kv head, token / 4, dim, 4 tokens |
//         scales of K: kv head, group, token | scales of V: the same]: all bytes before all scales, so that
//        they are aligned to cache lines whatever the number of groups
// kernel_table.h (HeadState) says what the bytes mean.
//
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/state_type.h"

namespace loci::cpu {

// The version of what attention computes with q8 state (docs/numerics.md). State of another version is not
// used.
inline constexpr std::uint32_t kQ8NumericsVersion = 1;

class StateLayout {
 public:
  // kF16 or kQ8.
  StateLayout(StateType type, std::uint32_t kv_heads, std::uint32_t head_dim);

  StateType type() const { return type_; }
  std::string name() const;  // BackendInfo::layout
  std::uint64_t slice_bytes() const { return slice_bytes_; }
  HeadState head(std::uint8_t* slice, std::uint32_t kv_head) const;
  // Copies the first `tokens` tokens of a slice into another.
  void copy_tokens(std::uint8_t* from, std::uint8_t* to, std::uint32_t tokens) const;
  // Zeroes the tokens of a slice from `first` on.
  void clear_tokens(std::uint8_t* slice, std::uint32_t first) const;
  const StateKernels& kernels(const KernelTable& table) const;

 private:
  void copy_f16(const HeadState& from, const HeadState& to, std::uint32_t tokens) const;
  void copy_q8(const HeadState& from, const HeadState& to, std::uint32_t tokens) const;

  const StateType type_;
  const std::uint32_t kv_heads_;
  const std::uint32_t head_dim_;
  const std::uint64_t head_bytes_;   // of the keys or values of one head, without scales
  const std::uint64_t scale_bytes_;  // of one head's keys or values
  const std::uint64_t slice_bytes_;
};

}  // namespace loci::cpu
