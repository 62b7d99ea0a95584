// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "loci/base/descriptor.h"
#include "loci/base/units.h"

namespace loci {
namespace {

Status unreadable(const std::string& name, int error) {
  return {StatusCode::kUnavailable, fmt::format("{} cannot be read: {}", name, std::strerror(error))};
}

// `flags`: of open(), beside those for reading.
Result<Descriptor> open_file(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (file.is_open()) return file;
  if (errno == ENOENT) return not_found(fmt::format("{} is not there", path));
  return unreadable(path, errno);
}

// (A stream's iterators throw where a read fails.)
Result<std::string> read_to_end(int descriptor, const std::string& name, std::size_t bytes_max) {
  std::string text;
  std::array<char, 65536> piece{};
  for (;;) {
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(name, errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > bytes_max)
      return Status(StatusCode::kUnavailable,
                    fmt::format("{}: expected a file of at most {}, found a longer one", name,
                                format_bytes(bytes_max)));
  }
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max) {
  LOCI_ASSIGN_OR_RETURN(const Descriptor file, open_file(path, 0));
  return read_to_end(file.get(), path, bytes_max);
}

// (Opening a pipe would wait until somebody writes to it; O_NONBLOCK does not.)
Result<std::string> read_text_file_again(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const Descriptor file, open_file(path, O_NONBLOCK));
  struct stat facts{};
  if (::fstat(file.get(), &facts) != 0) return unreadable(path, errno);
  if (!S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode))  // of a directory the read says so
    return Status(StatusCode::kUnavailable,
                  fmt::format("{}: expected an ordinary file, found another kind", path));
  return read_to_end(file.get(), path, kTextFileBytesMax);
}

Result<std::string> read_text(int descriptor, const std::string& name) {
  return read_to_end(descriptor, name, std::numeric_limits<std::size_t>::max());
}

}  // namespace loci
