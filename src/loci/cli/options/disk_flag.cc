// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/disk_flag.h"

#include <fmt/format.h>

#include <utility>

#include "loci/base/units.h"

namespace loci {

Result<DiskPlace> parse_disk_flag(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  DiskPlace folder{.path = text.substr(0, colon), .bytes = 0};
  if (colon != std::string::npos) {
    const Result<std::uint64_t> bytes = parse_bytes(text.substr(colon + 1), "");
    if (!bytes.ok() || *bytes == 0) {
      return invalid_argument(fmt::format("expected DIR or DIR:SIZE (/data/loci:64GiB), found \"{}\"", text));
    }
    folder.bytes = *bytes;
  }
  if (folder.path.empty())
    return invalid_argument(fmt::format("expected a directory before the size, found \"{}\"", text));
  return folder;
}

Result<std::vector<DiskPlace>> parse_disk_flags(const std::vector<std::string>& texts) {
  std::vector<DiskPlace> folders;
  if (texts.size() == 1 && texts.front() == "none") return folders;
  for (const std::string& text : texts) {
    if (text == "none")
      return invalid_argument("expected `none` alone or directories, found both (a directory: ./none)");
    if (text == "off" || text == "no" || text == "false" || text == "0")  // nobody means a directory
      return invalid_argument(
          fmt::format("expected `none` or a directory, found \"{0}\" (a directory: ./{0})", text));
    LOCI_ASSIGN_OR_RETURN(DiskPlace folder, parse_disk_flag(text));
    for (const DiskPlace& other : folders) {
      if (other.path == folder.path)
        return invalid_argument(fmt::format("expected different directories, found {} twice", folder.path));
    }
    folders.push_back(std::move(folder));
  }
  return folders;
}

std::vector<std::string> disk_flags(const std::vector<DiskPlace>& folders) {
  if (folders.empty()) return {"none"};
  std::vector<std::string> texts;
  for (const DiskPlace& folder : folders)
    texts.push_back(folder.bytes == 0 ? folder.path : folder.path + ":" + exact_bytes(folder.bytes));
  return texts;
}

}  // namespace loci
