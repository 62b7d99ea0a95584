// SPDX-License-Identifier: Apache-2.0
#include "loci/model/utf8.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

enum class Shape { kComplete, kBroken, kUnfinished };
struct Sequence {
  Shape shape;
  std::size_t bytes;  // of the character, or of the part that can't be completed
};

// Unicode's table 3-7: which second bytes may follow a first one.
Sequence first_sequence(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {Shape::kComplete, 1};
  std::size_t length = 0;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0) return {Shape::kBroken, 1};
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Shape::kUnfinished, i};
    if (byte(i) < low || byte(i) > high) return {Shape::kBroken, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Shape::kComplete, length};
}

}  // namespace

std::size_t append_utf8(std::string_view bytes, std::string& out) {
  std::size_t used = 0;
  while (used < bytes.size()) {
    const Sequence sequence = first_sequence(bytes.substr(used));
    if (sequence.shape == Shape::kUnfinished) break;
    out += sequence.shape == Shape::kComplete ? bytes.substr(used, sequence.bytes) : kReplacement;
    used += sequence.bytes;
  }
  return used;
}

void append_utf8_final(std::string_view bytes, std::string& out) {
  if (append_utf8(bytes, out) < bytes.size()) out += kReplacement;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Sequence sequence = first_sequence(bytes);
    if (sequence.shape != Shape::kComplete) return false;
    bytes.remove_prefix(sequence.bytes);
  }
  return true;
}

Utf8Character first_character(std::string_view text) {
  LOCI_CHECK(!text.empty(), "a character needs bytes");
  const std::size_t bytes = first_sequence(text).bytes;
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t value = bytes == 1 ? first : first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) value = (value << 6) | (static_cast<unsigned char>(text[i]) & 0x3f);
  return {value, bytes};
}

}  // namespace loci
