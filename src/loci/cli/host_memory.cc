// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>

#include "loci/base/control_group.h"
#include "loci/base/units.h"

namespace loci {
namespace {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

// The number behind `key` at the beginning of a line.
std::optional<std::uint64_t> find_number(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return parse_number(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

// What one control group leaves: its limit less what its processes hold. Files that were read and are
// not in use count as free: the kernel gives them up first.
std::optional<std::uint64_t> group_available(const std::string& folder) {
  const auto limit_text = read_system_file(folder + "/memory.max");
  const auto current_text = read_system_file(folder + "/memory.current");
  if (!limit_text || !current_text) return std::nullopt;
  const auto limit = parse_number(*limit_text);  // "max": none
  const auto current = parse_number(*current_text);
  if (!limit || !current) return std::nullopt;
  const std::string stat = read_system_file(folder + "/memory.stat").value_or("");
  const std::uint64_t reclaimable = find_number(stat, "inactive_file ").value_or(0);
  const std::uint64_t held = *current - std::min(*current, reclaimable);
  return *limit - std::min(*limit, held);
}

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

Result<HostMemoryReading> read_host_memory(const std::string& root) {
  const std::string meminfo = read_system_file(root + "/proc/meminfo").value_or("");
  const auto kib = find_number(meminfo, "MemAvailable:");
  if (!kib) {
    return Status(StatusCode::kUnavailable,
                  "this machine does not tell its available memory; give --device-memory", "--device-memory");
  }
  HostMemoryReading memory{.available_bytes = *kib * 1024, .limited_by = "the machine"};
  for (const std::string& folder : control_group_folders(root)) {
    const auto available = group_available(folder);
    if (!available || *available >= memory.available_bytes) continue;
    const std::string group = folder.substr((root + "/sys/fs/cgroup").size());
    memory = {.available_bytes = *available, .limited_by = "control group " + (group.empty() ? "/" : group)};
  }
  return memory;
}

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
          "--device-memory");
    }
    return PoolSize{.blocks = std::move(blocks), .reason = "--device-memory"};
  }
  const Share share = default_share(request);
  if (request.memory == PoolMemory::kHost && cap_bytes <= share.bytes) {
    return PoolSize{.blocks = cap, .reason = "four times what --max-running requests can hold"};
  }
  std::vector<std::uint32_t> blocks = split(share.bytes);
  if (blocks.empty()) {
    return invalid_argument(
        fmt::format(
            "only {} of memory are available, too little for two blocks of each group of layers: free "
            "some, or give --device-memory",
            format_bytes(request.available_bytes)),
        "--device-memory");
  }
  return PoolSize{.blocks = std::move(blocks), .reason = share.reason};
}

}  // namespace loci
