// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backend: zeroed, aligned to 64 bytes or better, on huge pages where the system
// grants them, spread over the memory nodes of a big machine. Move-only; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "loci/base/status.h"

namespace loci::cpu {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // Errors: kResourceExhausted naming `purpose`, the size and what the machine has.
  static Result<Buffer> allocate(std::uint64_t bytes, std::string_view purpose);

  // At least `bytes`, zeroed when it had to grow (what was there is lost then). A buffer that a pass
  // needs: aborts where the system has no memory.
  void reserve(std::uint64_t bytes, std::string_view purpose);

  // The whole pages of [begin, begin + bytes) go back to the system: they are zeros when they are used again.
  // (Part of a huge page is only split off when the system looks for memory.)
  void give_back(std::uint64_t begin, std::uint64_t bytes) const;

  std::uint8_t* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::uint8_t* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace loci::cpu
