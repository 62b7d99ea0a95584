// SPDX-License-Identifier: Apache-2.0
// The limits that the system's control groups set for this process; a container's limits are such limits. A
// limit may stand at any level above the process, and the narrowest counts. Reads version 2, and version 1
// for controllers that are mounted so.
//
// All functions read files under `root` ("" except in tests). Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// The folders of this process's groups of version 2, its own first, the topmost last.
std::vector<std::string> control_group_folders(const std::string& root);

// The processor time that the groups allow the process, in processors (cpu.max; cpu.cfs_quota_us): 1.5 is as
// much as one and a half processors. Absent: no group sets a limit.
std::optional<double> processor_limit(const std::string& root);

// A group that limits memory (memory.max and memory.high; memory.limit_in_bytes).
struct GroupMemory {
  std::string group;  // its path, "/" for the topmost
  std::uint64_t limit_bytes = 0;
  // Memory of the group's processes. Cached files that are not in use do not count, because the kernel gives
  // them up first.
  std::uint64_t held_bytes = 0;

  std::uint64_t available_bytes() const { return held_bytes < limit_bytes ? limit_bytes - held_bytes : 0; }
};

// All groups that limit memory, this process's own group first.
std::vector<GroupMemory> memory_limits(const std::string& root);

// The number that follows `key` at the beginning of a line of a system file; with the key "", the number at
// the file's beginning.
std::optional<std::uint64_t> find_number(const std::string& text, std::string_view key);

// A file's text; absent if it cannot be read.
std::optional<std::string> read_system_file(const std::string& path);

}  // namespace loci
