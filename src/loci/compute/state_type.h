// SPDX-License-Identifier: Apache-2.0
// The type to which keys and values are rounded when they are written (option state_type). A backend supports
// some of the types; one is its default. docs/numerics.md defines them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// kQ8: bytes; each 32 values (or 16) of a token's head share a power of two as their scale.
enum class StateType : std::uint8_t { kF16, kBF16, kQ8 };
inline constexpr std::array kStateTypes = {StateType::kF16, StateType::kBF16, StateType::kQ8};

std::string_view state_type_name(StateType type);
// "f16", "bf16", "q8". Errors: kInvalidArgument with the list.
Result<StateType> parse_state_type(std::string_view name);

// kQ8: how many dimensions of a head share a scale, and how many scales a head of a token has.
constexpr std::uint32_t q8_group_size(std::uint32_t head_dim) { return head_dim % 32 == 0 ? 32 : 16; }
constexpr std::uint32_t q8_groups(std::uint32_t head_dim) {
  return (head_dim + q8_group_size(head_dim) - 1) / q8_group_size(head_dim);
}

// Bytes of the keys (or values) of one token's head. A block holds nothing else.
constexpr std::uint64_t state_head_bytes(StateType type, std::uint32_t head_dim) {
  return type == StateType::kQ8 ? std::uint64_t{head_dim} + q8_groups(head_dim) : std::uint64_t{2} * head_dim;
}

}  // namespace loci
