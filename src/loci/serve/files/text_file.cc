// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace loci {
namespace {

Status unavailable(const std::string& path, const char* what) {
  return {StatusCode::kUnavailable, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A file's new name outlives a loss of power once its folder is on the disk.
bool sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  const bool synced = ::fsync(directory) == 0;
  ::close(directory);
  return synced;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0 && errno == ENOENT)
    return not_found(fmt::format("{} is not there", path));
  std::ifstream in(path, std::ios::binary);
  if (!in || S_ISDIR(facts.st_mode))
    return Status(StatusCode::kUnavailable, fmt::format("{} can't be read", path));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) return Status(StatusCode::kUnavailable, fmt::format("{} can't be read", path));
  return text;
}

Status replace_text_file(const std::string& path, std::string_view text) {
  struct stat facts{};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  const std::string fresh = fmt::format("{}.new-{}", path, ::getpid());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return unavailable(path, "a new file beside it can't be made");
  if (there && (::fchmod(file, facts.st_mode & 07777) != 0)) (void)errno;
  const bool written = write_all(file, text) && ::fsync(file) == 0;
  const bool closed = ::close(file) == 0;
  if (!written || !closed || std::rename(fresh.c_str(), path.c_str()) != 0) {
    Status status = unavailable(path, "can't be written");
    ::unlink(fresh.c_str());
    return status;
  }
  if (!sync_folder_of(path))
    return unavailable(
        path,
        "its folder could not be synchronised with the disk, so the change may be lost if the machine fails");
  return {};
}

}  // namespace loci
