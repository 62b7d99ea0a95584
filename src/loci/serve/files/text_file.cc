// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "loci/base/descriptor.h"

namespace loci {
namespace {

Status unreadable(const std::string& name, int error) {
  return {StatusCode::kUnavailable, fmt::format("{} cannot be read: {}", name, std::strerror(error))};
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open() && errno == ENOENT) return not_found(fmt::format("{} is not there", path));
  if (!file.is_open()) return unreadable(path, errno);
  return read_text(file.get(), path);
}

// (A stream's iterators throw where a read fails.)
Result<std::string> read_text(int descriptor, const std::string& name) {
  std::string text;
  std::array<char, 65536> piece{};
  for (;;) {
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(name, errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace loci
