// SPDX-License-Identifier: Apache-2.0
// Reading files of model formats: large ones are mapped whole, small ones read into memory.
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
  // Errors: kNotFound, kInvalidArgument (no permission, a directory or device); the message begins with the
  // path.
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

// Gives the pages that lie wholly within `bytes` of some FileMap back to the system. They are read from the
// file again when they are used again.
void release_mapped(std::span<const std::byte> bytes);

// Reads a whole file of at most `bytes_max` bytes. Errors: those of FileMap::open(), and kInvalidArgument for
// a larger file.
Result<std::string> read_small_file(const std::string& path, std::uint64_t bytes_max);

}  // namespace loci
