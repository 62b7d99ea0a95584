// SPDX-License-Identifier: Apache-2.0
#include "loci/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace loci {
namespace {

// The group's path: "0::/user.slice/x.scope". The topmost is "".
std::string own_group(const std::string& root) {
  std::istringstream lines(read_system_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::")) return line == "0::/" ? "" : line.substr(3);
  }
  return "";
}

// "150000 100000": so many microseconds of each period; "max 100000": no limit.
std::optional<double> processors_of(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::optional<std::string> read_system_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> control_group_folders(const std::string& root) {
  std::vector<std::string> folders;
  for (std::string group = own_group(root);;) {
    folders.push_back(root + "/sys/fs/cgroup" + group);
    if (group.empty()) return folders;
    const std::size_t last = group.rfind('/');
    group.resize(last == std::string::npos ? 0 : last);
  }
}

std::optional<double> processor_limit(const std::string& root) {
  std::optional<double> narrowest;
  for (const std::string& folder : control_group_folders(root)) {
    const std::optional<double> limit = processors_of(read_system_file(folder + "/cpu.max").value_or(""));
    if (limit) narrowest = std::min(*limit, narrowest.value_or(*limit));
  }
  return narrowest;
}

}  // namespace loci
