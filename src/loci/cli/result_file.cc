// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/result_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace loci {
namespace {

std::string reason() { return errno != 0 ? std::strerror(errno) : "cannot be written"; }

}  // namespace

Result<ResultFile> ResultFile::open(const std::string& path, const char* option) {
  errno = 0;
  if (!path.empty() && !std::ofstream(path, std::ios::app)) {
    return invalid_argument(fmt::format("expected a file that can be written, found {} ({})", path, reason()),
                            option);
  }
  return ResultFile(path);
}

Status ResultFile::write(const std::string& text) {
  if (path_.empty()) return {};
  errno = 0;
  std::ofstream out(path_, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return {StatusCode::kUnavailable, fmt::format("{}: {}", path_, reason())};
  return {};
}

}  // namespace loci
