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
#include <system_error>

namespace loci {
namespace {

Status failed_with(int error, const std::string& path, const char* what) {
  return {code_of_failed_write(error), fmt::format("{}: {}: {}", path, what, std::strerror(error))};
}

Status refuse_others(const std::string& path) {
  if (!is_no_file(path)) return {};
  return {StatusCode::kUnavailable,
          fmt::format("{}: expected a file, found a device, a pipe or a folder", path)};
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

std::string behind_links(const std::string& path) {
  constexpr int kLinksMax = 40;  // as the kernel's
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < kLinksMax && std::filesystem::is_symlink(at, error); ++i)
    at = at.parent_path() / std::filesystem::read_symlink(at, error);
  return at.string();
}

bool is_no_file(const std::string& path) {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
}

Status replace_file(const std::string& path, std::string_view content, mode_t new_mode) {
  LOCI_RETURN_IF_ERROR(refuse_others(path));
  const std::string real = behind_links(path);
  struct stat facts{};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  const std::string fresh = fmt::format("{}.new-{}", real, ::getpid());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, new_mode);
  if (file < 0) return failed_with(errno, path, "a new file beside it can't be made");
  if (there && ::fchmod(file, facts.st_mode & 07777) != 0) (void)errno;
  errno = 0;
  const bool is_written = write_all(file, content) && ::fsync(file) == 0;
  int error = is_written ? 0 : errno == 0 ? EIO : errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(fresh.c_str(), real.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(fresh.c_str());
    return failed_with(error, path, "can't be written");
  }
  if (!sync_folder_of(real))
    return failed_with(
        errno, path,
        "its folder could not be synchronised with the disk, so the change may be lost if the machine fails");
  return {};
}

Result<Descriptor> lock_changes(const std::string& path) {
  LOCI_RETURN_IF_ERROR(refuse_others(path));
  const std::string name = behind_links(path) + ".lock";
  Descriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.is_open()) return failed_with(errno, name, "can't be made");
  // Whoever may change the file may lock it. (Of another user's lock the mode stays, as it should be.)
  struct stat facts{};
  if (::stat(path.c_str(), &facts) == 0) (void)!::fchmod(file.get(), facts.st_mode & 0666);
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  while (::fcntl(file.get(), F_OFD_SETLKW, &lock) != 0) {
    if (errno != EINTR) return failed_with(errno, name, "can't be locked");
  }
  return file;
}

bool sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const Descriptor opened(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return false;
  // (Some file systems know no such thing for folders.)
  return ::fsync(opened.get()) == 0 || errno == EINVAL || errno == EOPNOTSUPP;
}

}  // namespace loci
