// SPDX-License-Identifier: Apache-2.0
#include "loci/base/control_group.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

namespace loci {
namespace {

// The process's group in the hierarchy that has the controller; "" for version 2's: "0::/user.slice/x.scope",
// "4:memory:/docker/ab". Absent: there is none. The topmost is "".
std::optional<std::string> own_group(const std::string& root, std::string_view controller) {
  std::istringstream lines(read_system_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find(':'), end = line.find(':', begin + 1);
    if (begin == std::string::npos || end == std::string::npos) continue;
    std::istringstream names(line.substr(begin + 1, end - begin - 1));
    bool found = controller.empty() && end == begin + 1;
    for (std::string name; std::getline(names, name, ',');) found = found || name == controller;
    if (!found || (controller.empty() && end != begin + 1)) continue;
    const std::string group = line.substr(end + 1);
    return group == "/" ? "" : group;
  }
  return std::nullopt;
}

// The group and those above it.
std::vector<std::string> with_those_above(std::string group) {
  std::vector<std::string> groups;
  while (true) {
    groups.push_back(group);
    if (group.empty()) return groups;
    const std::size_t last = group.rfind('/');
    group.resize(last == std::string::npos ? 0 : last);
  }
}

// "150000 100000": so many microseconds of each period; "max 100000", "-1 100000": no limit.
std::optional<double> processors_of(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// One group's files of memory. `stat_key`: of the files that are not in use.
struct MemoryFiles {
  std::vector<std::string> limits;
  std::string held;
  std::string stat_key;
};

std::optional<GroupMemory> memory_of(const std::string& folder, const MemoryFiles& files) {
  // No limit is "max", or the most that fits the kernel's counter.
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
  std::uint64_t limit = kNoLimit;
  for (const std::string& name : files.limits) {
    const std::string text = read_system_file(folder + name).value_or("");
    limit = std::min(limit, find_number(text, "").value_or(kNoLimit));
  }
  const auto held = find_number(read_system_file(folder + files.held).value_or(""), "");
  if (limit >= kNoLimit || !held) return std::nullopt;
  const std::string stat = read_system_file(folder + "/memory.stat").value_or("");
  const std::uint64_t unused = find_number(stat, files.stat_key).value_or(0);
  return GroupMemory{.group = "", .limit_bytes = limit, .held_bytes = *held - std::min(*held, unused)};
}

}  // namespace

std::optional<std::string> read_system_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> find_number(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::string_view rest = std::string_view(line).substr(key.size());
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (parsed.ec == std::errc()) return value;
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<std::string> control_group_folders(const std::string& root) {
  std::vector<std::string> folders = with_those_above(own_group(root, "").value_or(""));
  for (std::string& folder : folders) folder = root + "/sys/fs/cgroup" + folder;
  return folders;
}

std::optional<double> processor_limit(const std::string& root) {
  std::optional<double> narrowest;
  const auto take = [&](const std::string& text) {
    const std::optional<double> limit = processors_of(text);
    if (limit) narrowest = std::min(*limit, narrowest.value_or(*limit));
  };
  for (const std::string& folder : control_group_folders(root))
    take(read_system_file(folder + "/cpu.max").value_or(""));
  if (const auto own = own_group(root, "cpu")) {
    for (const std::string& group : with_those_above(*own)) {
      const std::string folder = root + "/sys/fs/cgroup/cpu" + group;
      take(read_system_file(folder + "/cpu.cfs_quota_us").value_or("") + " " +
           read_system_file(folder + "/cpu.cfs_period_us").value_or(""));
    }
  }
  return narrowest;
}

std::vector<GroupMemory> memory_limits(const std::string& root) {
  std::vector<GroupMemory> limits;
  const auto add = [&](const std::string& mount, const std::string& own, const MemoryFiles& files) {
    for (const std::string& group : with_those_above(own)) {
      std::optional<GroupMemory> found = memory_of(root + mount + group, files);
      if (!found) continue;
      found->group = group.empty() ? "/" : group;
      limits.push_back(std::move(*found));
    }
  };
  add("/sys/fs/cgroup", own_group(root, "").value_or(""),
      {{"/memory.max", "/memory.high"}, "/memory.current", "inactive_file "});
  if (const auto own = own_group(root, "memory")) {
    add("/sys/fs/cgroup/memory", *own,
        {{"/memory.limit_in_bytes"}, "/memory.usage_in_bytes", "total_inactive_file "});
  }
  return limits;
}

}  // namespace loci
