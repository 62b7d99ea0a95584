// SPDX-License-Identifier: Apache-2.0
#include "loci/base/available_memory.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "loci/base/control_group.h"

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

}  // namespace

Result<AvailableMemory> read_available_memory(const std::string& root) {
  const std::string meminfo = read_system_file(root + "/proc/meminfo").value_or("");
  const auto kib = find_number(meminfo, "MemAvailable:");
  if (!kib) {
    return Status(StatusCode::kUnavailable, "this machine does not tell how much memory is available");
  }
  AvailableMemory memory{.bytes = *kib * 1024, .limited_by = "the machine"};
  for (const std::string& folder : control_group_folders(root)) {
    const auto available = group_available(folder);
    if (!available || *available >= memory.bytes) continue;
    const std::string group = folder.substr((root + "/sys/fs/cgroup").size());
    memory = {.bytes = *available, .limited_by = "control group " + (group.empty() ? "/" : group)};
  }
  return memory;
}

}  // namespace loci
