// SPDX-License-Identifier: Apache-2.0
// What the system's control groups allow this process: a container's limits are made of them. A limit may
// stand at any level above the process, and the narrowest counts. Of version 2, or, where a controller is
// mounted so, of version 1.
//
// All of it reads files under `root` ("" but in tests). Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// The folders of this process's groups of version 2, its own first, the topmost last.
std::vector<std::string> control_group_folders(const std::string& root);

// Processors' worth of time that the groups give the process (cpu.max; cpu.cfs_quota_us): 1.5 is half of the
// time of three. Nothing where no group sets a limit.
std::optional<double> processor_limit(const std::string& root);

// A group that limits memory (memory.max and memory.high; memory.limit_in_bytes).
struct GroupMemory {
  std::string group;  // its path, "/" for the topmost
  std::uint64_t limit_bytes = 0;
  // By its processes. Files that were read and are not in use do not count: the kernel gives them up first.
  std::uint64_t held_bytes = 0;

  std::uint64_t available_bytes() const { return held_bytes < limit_bytes ? limit_bytes - held_bytes : 0; }
};

// All that do, this process's own group first.
std::vector<GroupMemory> memory_limits(const std::string& root);

// The number behind `key` at the beginning of a line of a system's file, or at its beginning ("").
std::optional<std::uint64_t> find_number(const std::string& text, std::string_view key);

// A file's text; nothing where it cannot be read.
std::optional<std::string> read_system_file(const std::string& path);

}  // namespace loci
