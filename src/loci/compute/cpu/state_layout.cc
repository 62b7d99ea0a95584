// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/state_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "loci/base/check.h"

namespace loci::cpu {

StateLayout::StateLayout(StateType type, std::uint32_t kv_heads, std::uint32_t head_dim)
    : type_(type),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      head_bytes_(std::uint64_t{head_dim} * kTokensPerBlock * (type == StateType::kQ8 ? 1 : 2)),
      scale_bytes_(type == StateType::kQ8 ? std::uint64_t{q8_groups(head_dim)} * kTokensPerBlock : 0),
      slice_bytes_(std::uint64_t{2} * kv_heads * (head_bytes_ + scale_bytes_)) {
  LOCI_CHECK(type == StateType::kF16 || type == StateType::kQ8, "a type that kernels have");
  LOCI_CHECK(head_bytes_ + scale_bytes_ == state_head_bytes(type, head_dim) * kTokensPerBlock,
             "what users are told of a token's size");
}

std::string StateLayout::name() const {
  if (type_ == StateType::kF16) return "layer,k[head,dim,token]v[head,token,dim],f16";
  return fmt::format("layer,k[head,half,dim/4,token,4]v[head,token/4,dim,4]k,v[head,group,token],q8.{}",
                     kQ8NumericsVersion);
}

const StateKernels& StateLayout::kernels(const KernelTable& table) const {
  return type_ == StateType::kQ8 ? table.q8 : table.f16;
}

HeadState StateLayout::head(std::uint8_t* slice, std::uint32_t kv_head) const {
  std::uint8_t* scales = slice + 2 * kv_heads_ * head_bytes_;
  return {slice + kv_head * head_bytes_, slice + (kv_heads_ + kv_head) * head_bytes_,
          scales + kv_head * scale_bytes_, scales + (kv_heads_ + kv_head) * scale_bytes_};
}

void StateLayout::copy_f16(const HeadState& from, const HeadState& to, std::uint32_t tokens) const {
  constexpr std::size_t kBytes = sizeof(std::uint16_t);
  for (std::uint32_t dim = 0; dim < head_dim_; ++dim) {
    const std::size_t at = dim * kTokensPerBlock * kBytes;
    std::memcpy(to.keys + at, from.keys + at, tokens * kBytes);
  }
  std::memcpy(to.values, from.values, std::size_t{tokens} * head_dim_ * kBytes);
}

void StateLayout::copy_q8(const HeadState& from, const HeadState& to, std::uint32_t tokens) const {
  for (std::uint32_t first = 0; first < tokens; first += kLanes) {
    const std::size_t count = std::min(tokens - first, kLanes);
    for (std::uint32_t chunk = 0; chunk < head_dim_ / 4; ++chunk) {
      const std::size_t at = std::size_t{first} * head_dim_ + chunk * 4 * kLanes;
      std::memcpy(to.keys + at, from.keys + at, 4 * count);
    }
  }
  const std::size_t whole = std::size_t{tokens / 4} * 4 * head_dim_;
  std::memcpy(to.values, from.values, whole);
  for (std::uint32_t dim = 0; dim < head_dim_ && tokens % 4 != 0; ++dim)
    std::memcpy(to.values + whole + 4 * dim, from.values + whole + 4 * dim, tokens % 4);
  for (std::uint32_t group = 0; group < q8_groups(head_dim_); ++group) {
    const std::size_t at = group * kTokensPerBlock;
    std::memcpy(to.key_scales + at, from.key_scales + at, tokens);
    std::memcpy(to.value_scales + at, from.value_scales + at, tokens);
  }
}

void StateLayout::copy_tokens(std::uint8_t* from, std::uint8_t* to, std::uint32_t tokens) const {
  for (std::uint32_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
    if (type_ == StateType::kQ8) {
      copy_q8(head(from, kv_head), head(to, kv_head), tokens);
    } else {
      copy_f16(head(from, kv_head), head(to, kv_head), tokens);
    }
  }
}

void StateLayout::clear_tokens(std::uint8_t* slice, std::uint32_t first) const {
  std::vector<std::uint8_t> kept(slice_bytes_);
  copy_tokens(slice, kept.data(), first);
  std::memcpy(slice, kept.data(), slice_bytes_);
}

}  // namespace loci::cpu
