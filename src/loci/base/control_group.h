// SPDX-License-Identifier: Apache-2.0
// What the system's control groups (version 2) allow this process: a container's limits are made of them. A
// limit may stand at any level above the process, and the narrowest counts.
//
// All of it reads files under `root` ("" but in tests). Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// The folders of this process's groups, its own first, the topmost last.
std::vector<std::string> control_group_folders(const std::string& root);

// Processors' worth of time that the groups give the process (cpu.max): 1.5 is half of the time of three.
// Nothing where no group sets a limit.
std::optional<double> processor_limit(const std::string& root);

// A file's text; nothing where it cannot be read.
std::optional<std::string> read_system_file(const std::string& path);

}  // namespace loci
