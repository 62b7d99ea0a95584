// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/pool_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "loci/base/units.h"

namespace loci {
namespace {

// What the pool gets of the available bytes where nobody gave a size.
struct Share {
  std::uint64_t bytes = 0;
  std::string reason;
};

Share default_share(const PoolRequest& request) {
  const std::uint64_t available = request.available_bytes;
  if (request.memory == PoolMemory::kDevice) {
    return {available - available / 10,
            fmt::format("90 % of the {} that the weights leave", format_bytes(available))};
  }
  return {available / 2, fmt::format("half of the {} available", format_bytes(available))};
}

}  // namespace

std::uint64_t default_host_tier(PoolMemory pool, std::uint64_t available_bytes) {
  return pool == PoolMemory::kHost ? 0 : available_bytes / 2;
}

Result<PoolSize> size_pool(const PoolRequest& request) {
  constexpr std::uint64_t kBlocksMax = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t least_bytes = 0, cap_bytes = 0;
  std::vector<std::uint32_t> cap;
  for (const PoolGroup& group : request.groups) {
    const std::uint64_t most =
        std::uint64_t{4} * blocks_needed(group, request.context_tokens) * request.max_running;
    cap.push_back(static_cast<std::uint32_t>(std::min(kBlocksMax, most)));
    cap_bytes += cap.back() * group.block_bytes;
    least_bytes += 2 * group.block_bytes;
  }
  const auto split = [&](std::uint64_t bytes) {
    std::vector<std::uint32_t> blocks = split_pool(bytes, request.groups, request.context_tokens);
    const bool enough = std::all_of(blocks.begin(), blocks.end(), [](auto count) { return count >= 2; });
    return enough ? blocks : std::vector<std::uint32_t>();
  };
  if (request.wanted_bytes) {
    std::vector<std::uint32_t> blocks = split(*request.wanted_bytes);
    if (blocks.empty()) {
      return invalid_argument(
          fmt::format("expected room for at least two blocks of each group of layers, {}; got {}",
                      format_bytes(least_bytes), format_bytes(*request.wanted_bytes)),
          "device_memory");
    }
    LOCI_RETURN_IF_ERROR(check_pool_slots(*request.wanted_bytes, blocks, "device_memory"));
    return PoolSize{.blocks = std::move(blocks), .reason = "as configured"};
  }
  const Share share = default_share(request);
  if (request.memory == PoolMemory::kHost && cap_bytes <= share.bytes) {
    return PoolSize{.blocks = cap, .reason = "four times what the most running requests can hold"};
  }
  std::vector<std::uint32_t> blocks = split(share.bytes);
  if (blocks.empty()) {
    return invalid_argument(
        fmt::format(
            "only {} of memory are available, too little for two blocks of each group of layers: free "
            "some, or say how much to take",
            format_bytes(request.available_bytes)),
        "device_memory");
  }
  return PoolSize{.blocks = std::move(blocks), .reason = share.reason};
}

Result<PoolSizes> size_pools(const PoolsRequest& request) {
  const bool own_memory = request.memory == PoolMemory::kDevice;
  const auto unknown = [](const char* option) {
    return Status(StatusCode::kUnavailable,
                  "this machine does not tell how much memory is available: give a size, such as 8GiB",
                  option);
  };
  PoolSizes sizes;
  if (request.host_bytes) {
    sizes.host_bytes = *request.host_bytes;
  } else if (own_memory) {
    if (!request.host_available_bytes) return unknown("host_memory");
    sizes.host_bytes = default_host_tier(request.memory, *request.host_available_bytes);
    sizes.host_reason = fmt::format("half of the {} available", format_bytes(*request.host_available_bytes));
  }
  if (!own_memory && !request.device_bytes && !request.host_available_bytes) return unknown("device_memory");
  const std::uint64_t available =
      own_memory ? request.device_available_bytes : request.host_available_bytes.value_or(0);
  if (!own_memory && !request.device_bytes && sizes.host_bytes > 0 && sizes.host_bytes >= available)
    return invalid_argument(
        fmt::format("expected less than the {} of memory that are available, which the device's state is to "
                    "have a share of; got {}",
                    format_bytes(available), format_bytes(sizes.host_bytes)),
        "host_memory");
  LOCI_ASSIGN_OR_RETURN(
      sizes.device, size_pool({.wanted_bytes = request.device_bytes,
                               // On a CPU the host tier is of the same memory.
                               .available_bytes =
                                   own_memory ? available : available - std::min(available, sizes.host_bytes),
                               .groups = request.groups,
                               .context_tokens = request.context_tokens,
                               .max_running = request.max_running,
                               .memory = request.memory}));
  return sizes;
}

}  // namespace loci
