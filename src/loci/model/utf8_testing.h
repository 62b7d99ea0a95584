// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of characters and of tokenizers.
#pragma once

#include <string>

namespace loci {

// Appends the UTF-8 encoding of one character.
inline void append_character(char32_t character, std::string& out) {
  const auto push = [&](char32_t bits) { out += static_cast<char>(bits); };
  if (character < 0x80) {
    push(character);
  } else if (character < 0x800) {
    push(0xc0 | (character >> 6));
    push(0x80 | (character & 0x3f));
  } else if (character < 0x10000) {
    push(0xe0 | (character >> 12));
    push(0x80 | ((character >> 6) & 0x3f));
    push(0x80 | (character & 0x3f));
  } else {
    push(0xf0 | (character >> 18));
    push(0x80 | ((character >> 12) & 0x3f));
    push(0x80 | ((character >> 6) & 0x3f));
    push(0x80 | (character & 0x3f));
  }
}

}  // namespace loci
