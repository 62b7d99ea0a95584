// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backend: zeroed, aligned to 64 bytes or better, on huge pages if the system grants them,
// and spread over the memory nodes of a big machine. Move-only; not thread-safe.
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

  // Makes room for at least `bytes`. If the buffer has to grow it is zeroed and its contents are lost. Aborts
  // if the system has no memory: a pass needs the buffer.
  void reserve(std::uint64_t bytes, std::string_view purpose);

  // Gives the whole pages within [begin, begin + bytes) back to the system; they read as zeros when they are
  // used again. (Part of a huge page is only split off when the system looks for memory.)
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
