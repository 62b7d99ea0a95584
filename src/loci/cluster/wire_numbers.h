// SPDX-License-Identifier: Apache-2.0
// Numbers in the messages of peers and of the feed: unsigned, little-endian, without padding.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace loci {

template <std::unsigned_integral T>
void put_number(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
}

// Takes the fields of a message one after the other. Requires: they are there; the caller has compared
// lengths.
class FieldTaker {
 public:
  explicit FieldTaker(std::string_view message) : left_(message) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint64_t value = 0;
    const std::string_view taken = bytes(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return static_cast<T>(value);
  }
  std::string_view bytes(std::size_t count) {
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  // Bytes that follow.
  std::size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
};

}  // namespace loci
