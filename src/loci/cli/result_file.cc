// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/result_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "loci/base/descriptor.h"
#include "loci/base/durable_file.h"

namespace loci {
namespace {

constexpr mode_t kForAll = 0666;  // less what the process masks

std::string reason() { return errno != 0 ? std::strerror(errno) : "cannot be written"; }

// Whether a file can be made beside the one at `path`.
bool has_room_beside(const std::string& path) {
  const std::string fresh = fmt::format("{}.new-{}", behind_links(path), ::getpid());
  if (!Descriptor(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kForAll)).is_open()) return false;
  ::unlink(fresh.c_str());
  return true;
}

}  // namespace

Result<ResultFile> ResultFile::open(const std::string& path, const char* option) {
  ResultFile out(path);
  if (path.empty()) return out;
  std::error_code ignored;
  errno = 0;
  const bool is_there = std::filesystem::exists(path, ignored);
  bool can_be_written = false;
  if (std::filesystem::is_directory(path, ignored)) {
    errno = EISDIR;
  } else if (is_there) {
    can_be_written = ::access(path.c_str(), W_OK) == 0;
    out.in_place_ = can_be_written && (is_no_file(path) || !has_room_beside(path));
  } else {
    can_be_written = has_room_beside(path);
  }
  if (can_be_written) return out;
  return invalid_argument(fmt::format("expected a file that can be written, found {} ({})", path, reason()),
                          option);
}

Status ResultFile::write(const std::string& text) {
  if (path_.empty()) return {};
  if (!in_place_) return replace_file(path_, text, kForAll);
  errno = 0;
  std::ofstream out(path_, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return {StatusCode::kUnavailable, fmt::format("{}: {}", path_, reason())};
  return {};
}

}  // namespace loci
