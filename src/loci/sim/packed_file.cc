// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/packed_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace loci::sim {
namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 20;

}  // namespace

void PackedFile::Close::operator()(gzFile_s* file) const { ::gzclose(file); }

Result<PackedFile> PackedFile::open(const std::string& path) {
  errno = 0;
  gzFile_s* const file = ::gzopen(path.c_str(), "rb");
  if (file == nullptr)
    return not_found(fmt::format("{}: {}", path, errno != 0 ? std::strerror(errno) : "out of memory"));
  return PackedFile(path, file);
}

Result<std::size_t> PackedFile::read(std::span<char> out) {
  const std::size_t wanted = std::min(out.size(), kPartBytes);  // gzread takes and gives an int
  const int count = ::gzread(file_.get(), out.data(), static_cast<unsigned>(wanted));
  if (count == static_cast<int>(wanted)) return wanted;
  int code = Z_OK;
  std::string_view message = ::gzerror(file_.get(), &code);
  if (code == Z_BUF_ERROR)
    return data_loss(
        fmt::format("{}: expected the end of the gzip data, found the end of the file: it is "
                    "truncated; fetch it again",
                    path_));
  if (message.starts_with(path_ + ": ")) message.remove_prefix(path_.size() + 2);
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END))
    return data_loss(
        fmt::format("{}: {}", path_, code == Z_ERRNO ? std::string_view(std::strerror(errno)) : message));
  return static_cast<std::size_t>(count);
}

Result<std::optional<std::string>> PackedFile::line() {
  std::string text;
  for (bool ended = false; !ended;) {
    const auto begin = part_.begin() + static_cast<std::ptrdiff_t>(at_);
    const auto end = std::find(begin, part_.end(), '\n');
    text.append(begin, end);
    if (end != part_.end()) {
      at_ = static_cast<std::size_t>(end - part_.begin()) + 1;
      return std::optional(std::move(text));
    }
    part_.resize(kPartBytes);
    LOCI_ASSIGN_OR_RETURN(const std::size_t count, read(part_));
    part_.resize(count);
    at_ = 0;
    ended = count == 0;
  }
  return text.empty() ? std::optional<std::string>() : std::optional(std::move(text));
}

Result<std::string> read_text(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(PackedFile file, PackedFile::open(path));
  std::string text;
  for (std::size_t size = 0;; size = text.size()) {
    text.resize(size + kPartBytes);
    LOCI_ASSIGN_OR_RETURN(const std::size_t count, file.read(std::span(text).subspan(size)));
    text.resize(size + count);
    if (count < kPartBytes) return text;
  }
}

std::optional<std::string> shared_data(const std::string& name) {
  const char* shared = std::getenv("LOCI_SHARED_DATA");
  const char* source = std::getenv("LOCI_SOURCE_DIR");
  const std::string folder =
      shared != nullptr ? shared : std::string(source != nullptr ? source : ".") + "/../shared/data";
  const std::string path = folder + "/" + name;
  std::error_code error;
  return std::filesystem::exists(path, error) ? std::optional(path) : std::nullopt;
}

}  // namespace loci::sim
