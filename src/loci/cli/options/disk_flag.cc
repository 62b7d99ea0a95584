// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/disk_flag.h"

#include <fmt/format.h>

#include <utility>

#include "loci/base/units.h"

namespace loci {

Result<DiskFlag> parse_disk_flag(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  DiskFlag flag{.path = text.substr(0, colon), .bytes = 0};
  if (colon != std::string::npos) {
    const Result<std::uint64_t> bytes = parse_bytes(text.substr(colon + 1), "");
    if (!bytes.ok() || *bytes == 0) {
      return invalid_argument(fmt::format("expected DIR or DIR:SIZE (/data/loci:64GiB), found \"{}\"", text));
    }
    flag.bytes = *bytes;
  }
  if (flag.path.empty())
    return invalid_argument(fmt::format("expected a directory before the size, found \"{}\"", text));
  return flag;
}

Result<std::vector<DiskFlag>> parse_disk_flags(const std::vector<std::string>& texts) {
  std::vector<DiskFlag> flags;
  if (texts.size() == 1 && texts.front() == "none") return flags;
  for (const std::string& text : texts) {
    if (text == "none")
      return invalid_argument("expected `none` alone or directories, found both (a directory: ./none)");
    if (text == "off" || text == "no" || text == "false" || text == "0")  // nobody means a directory
      return invalid_argument(
          fmt::format("expected `none` or a directory, found \"{0}\" (a directory: ./{0})", text));
    LOCI_ASSIGN_OR_RETURN(DiskFlag flag, parse_disk_flag(text));
    for (const DiskFlag& other : flags) {
      if (other.path == flag.path)
        return invalid_argument(fmt::format("expected different directories, found {} twice", flag.path));
    }
    flags.push_back(std::move(flag));
  }
  return flags;
}

}  // namespace loci
