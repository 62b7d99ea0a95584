// SPDX-License-Identifier: Apache-2.0
#include "loci/model/file_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "loci/base/descriptor.h"
#include "loci/base/memory_pages.h"

namespace loci {
namespace {

Status file_error(int error, std::string_view what, const std::string& path) {
  std::string message = fmt::format("{}: cannot {}: {}", path, what, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(std::move(message));
  return invalid_argument(std::move(message));
}

}  // namespace

Result<FileMap> FileMap::open(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return file_error(errno, "open it", path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return file_error(errno, "read its size", path);
  if (!S_ISREG(status.st_mode))
    return invalid_argument(path + ": expected a regular file, found a directory or device");
  if (status.st_size == 0) return FileMap();
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return file_error(errno, "map it", path);
  return FileMap(data, size);
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void release_mapped(std::span<const std::byte> bytes) { give_back(whole_pages(bytes.data(), bytes.size())); }

Result<std::string> read_small_file(const std::string& path, std::uint64_t bytes_max) {
  LOCI_ASSIGN_OR_RETURN(const FileMap map, FileMap::open(path));
  const std::span<const std::byte> bytes = map.bytes();
  if (bytes.size() > bytes_max) {
    return invalid_argument(
        fmt::format("{}: expected at most {} bytes, found {}", path, bytes_max, bytes.size()));
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace loci
