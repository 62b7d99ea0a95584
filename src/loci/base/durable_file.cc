// SPDX-License-Identifier: Apache-2.0
#include "loci/base/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "loci/base/descriptor.h"

namespace loci {
namespace {

Status failed_with(int error, const std::string& path, const char* what) {
  return {code_of_failed_write(error), fmt::format("{}: {}: {}", path, what, std::strerror(error))};
}

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

StatusCode code_of_failed_write(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable;
}

Status replace_file(const std::string& path, std::string_view content) {
  struct stat facts{};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  const std::string fresh = fmt::format("{}.new-{}", path, ::getpid());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return failed_with(errno, path, "a new file beside it can't be made");
  if (there && ::fchmod(file, facts.st_mode & 07777) != 0) (void)errno;
  errno = 0;
  const bool is_written = write_all(file, content) && ::fsync(file) == 0;
  int error = is_written ? 0 : errno == 0 ? EIO : errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(fresh.c_str());
    return failed_with(error, path, "can't be written");
  }
  if (!sync_folder_of(path))
    return failed_with(
        errno, path,
        "its folder could not be synchronised with the disk, so the change may be lost if the machine fails");
  return {};
}

bool sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const Descriptor opened(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return false;
  // (Some file systems know no such thing for folders.)
  return ::fsync(opened.get()) == 0 || errno == EINVAL || errno == EOPNOTSUPP;
}

}  // namespace loci
