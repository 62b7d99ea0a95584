// SPDX-License-Identifier: Apache-2.0
// Files as model formats read them: mapped whole, or small ones read into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "loci/base/status.h"

namespace loci {

// A whole file, mapped for reading; an empty file is an empty map. Move-only, immutable and thread-safe.
// The file must not be shortened while it is mapped.
class FileMap {
 public:
  // Errors: kNotFound, kInvalidArgument (no permission, a directory or device); the path leads the message.
  static Result<FileMap> open(const std::string& path);
  FileMap() = default;
  FileMap(FileMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FileMap& operator=(FileMap&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FileMap();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  FileMap(void* data, std::size_t size) : data_(data), size_(size) {}

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Lets the system have back the pages that lie wholly within `bytes` of some FileMap: they are read from
// the file again when they are used again.
void release_mapped(std::span<const std::byte> bytes);

// The whole of a file of at most `bytes_max` bytes. Errors: as FileMap::open, and kInvalidArgument for a
// larger one.
Result<std::string> read_small_file(const std::string& path, std::uint64_t bytes_max);

}  // namespace loci
