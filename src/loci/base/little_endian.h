// SPDX-License-Identifier: Apache-2.0
// Numbers as bytes: little-endian, without padding, the same on any machine. Messages and files have them so;
// the disk store's records are laid out by place instead (memory/disk/disk_format.cc).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace loci {

template <std::integral T>
constexpr std::array<std::uint8_t, sizeof(T)> little_endian(T value) {
  const auto word = static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
  std::array<std::uint8_t, sizeof(T)> bytes{};
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
  return bytes;
}

// Bytes beyond those that the number has are not read; those that are missing are 0.
template <std::integral T>
constexpr T from_little_endian(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < std::min(sizeof(T), bytes.size()); ++i)
    word |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return static_cast<T>(word);
}

// Appends the number to a string or a vector of bytes.
template <class Bytes, std::integral T>
void put_number(Bytes& out, T value) {
  const auto bytes = little_endian(value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Takes the fields of a message one after the other. Requires: they are there; the caller has compared
// lengths.
class FieldTaker {
 public:
  explicit FieldTaker(std::string_view message) : left_(message) {}

  template <std::integral T>
  T number() {
    return from_little_endian<T>(bytes(sizeof(T)));
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
