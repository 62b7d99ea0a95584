// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

#include "loci/base/check.h"
#include "loci/base/memory_pages.h"
#include "loci/base/units.h"
#include "loci/compute/cpu/numa.h"

namespace loci::cpu {

namespace {

// A multiple of `unit` bytes at a multiple of it: a huge page can only lie there. nullptr: no memory.
std::uint8_t* map_aligned(std::uint64_t size, std::uint64_t unit) {
  void* mapped = mmap(nullptr, size + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::uint8_t*>(mapped);
  const std::uint64_t before = (unit - reinterpret_cast<std::uintptr_t>(begin) % unit) % unit;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + size, unit - before);
  return begin + before;
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

Result<Buffer> Buffer::allocate(std::uint64_t bytes, std::string_view purpose) {
  Buffer buffer;
  // Kernels may load a vector past the last element.
  const std::uint64_t unit = bytes >= kHugePageBytes ? kHugePageBytes : 4096;
  const std::uint64_t size = (bytes + 256 + unit - 1) / unit * unit;
  std::uint8_t* data = nullptr;
  if (size >= bytes && size <= machine_memory()) data = map_aligned(size, unit);
  if (data == nullptr) {
    return resource_exhausted(fmt::format("{} needs {}, and this machine has {} in all: ask for less",
                                          purpose, format_bytes(bytes), format_bytes(machine_memory())));
  }
  if (unit == kHugePageBytes) {
    madvise(data, size, MADV_HUGEPAGE);
    interleave_pages(data, size);
  }
  buffer.data_ = data;
  buffer.size_ = size;
  return buffer;
}

void Buffer::give_back(std::uint64_t begin, std::uint64_t bytes) const {
  LOCI_CHECK(begin + bytes <= size_, "a piece of the buffer");
  loci::give_back(whole_pages(data_ + begin, bytes));
}

void Buffer::reserve(std::uint64_t bytes, std::string_view purpose) {
  if (bytes + 256 <= size_) return;
  Result<Buffer> grown = allocate(bytes + bytes / 4, purpose);
  LOCI_CHECK(grown.ok(), "no memory for a pass");
  *this = std::move(*grown);
}

}  // namespace loci::cpu
