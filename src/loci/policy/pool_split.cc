// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/pool_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "loci/base/units.h"
#include "loci/compute/backend.h"

namespace loci {
namespace {

constexpr std::uint32_t kExpectedTokens = 2048;

}  // namespace

std::uint32_t expected_tokens(std::span<const PoolGroup> groups, std::uint32_t context_tokens) {
  std::uint64_t tokens = kExpectedTokens;
  for (const PoolGroup& group : groups) {
    if (group.window < context_tokens) tokens = std::max(tokens, std::uint64_t{2} * group.window);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, context_tokens));
}

std::uint32_t blocks_needed(const PoolGroup& group, std::uint32_t tokens) {
  const auto blocks = [](std::uint32_t count) {
    return (std::uint64_t{count} + kBlockTokens - 1) / kBlockTokens;
  };
  const std::uint64_t all = std::max<std::uint64_t>(blocks(tokens), 1);
  return static_cast<std::uint32_t>(group.window == 0 ? all : std::min(all, blocks(group.window) + 2));
}

Status check_pool_slots(std::uint64_t bytes, std::span<const std::uint32_t> slots, std::string_view field) {
  if (std::ranges::all_of(slots, [](std::uint32_t count) { return count <= kPoolSlotsMax; })) return {};
  return invalid_argument(
      fmt::format(
          "expected a size of at most {} blocks of state in each group of layers; got {}, which has more",
          kPoolSlotsMax, format_bytes(bytes)),
      std::string(field));
}

std::vector<std::uint32_t> split_pool(std::uint64_t bytes, std::span<const PoolGroup> groups,
                                      std::uint32_t context_tokens) {
  const std::uint32_t tokens = expected_tokens(groups, context_tokens);
  std::uint64_t conversation_bytes = 0;
  for (const PoolGroup& group : groups)
    conversation_bytes += blocks_needed(group, tokens) * group.block_bytes;
  std::vector<std::uint32_t> slots;
  for (const PoolGroup& group : groups) {
    // Whole conversations, then the part of one.
    const std::uint64_t needed = blocks_needed(group, tokens);
    const std::uint64_t count =
        bytes / conversation_bytes * needed + bytes % conversation_bytes * needed / conversation_bytes;
    slots.push_back(static_cast<std::uint32_t>(
        std::min<std::uint64_t>(count, std::numeric_limits<std::uint32_t>::max())));
  }
  return slots;
}

}  // namespace loci
