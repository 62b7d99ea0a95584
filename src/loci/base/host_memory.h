// SPDX-License-Identifier: Apache-2.0
// A piece of host memory that holds blocks of state. It comes from the system, or from a device's driver that
// pinned it. Move-only; as thread-safe as plain memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "loci/base/status.h"

namespace loci {

class HostMemory {
 public:
  HostMemory() = default;
  // `release` gives it back.
  HostMemory(std::byte* data, std::uint64_t bytes, std::function<void()> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  HostMemory(HostMemory&& other) noexcept { swap(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostMemory() {
    if (release_) release_();
  }

  // Memory from the system: page-aligned and zeroed. The system provides each page when it is first written,
  // so unused memory costs nothing. Large pages, where the system has them, are fewer, but the first write to
  // one may take milliseconds. Errors: kResourceExhausted.
  enum class Pages : std::uint8_t { kLarge, kSmall };
  static Result<HostMemory> map(std::uint64_t bytes, Pages pages = Pages::kLarge);
  // Gives whole pages of mapped memory back, from `begin` to its end or to where that was done before; they
  // are zeroed.
  void give_back_from(std::uint64_t begin);

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return bytes_; }

 private:
  void swap(HostMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(given_back_from_, other.given_back_from_);
    std::swap(release_, other.release_);
  }
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t given_back_from_ = UINT64_MAX;
  std::function<void()> release_;
};

}  // namespace loci
