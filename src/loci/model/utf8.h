// SPDX-License-Identifier: Apache-2.0
// Turns bytes into UTF-8 text, with U+FFFD for invalid bytes: one for each maximal part of a character that
// cannot be completed, as Unicode recommends and as Python and Rust do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace loci {

// Appends the text of `bytes` to `out` and returns how many bytes were used. An unfinished character at
// the end is left unused, so that more bytes may complete it.
std::size_t append_utf8(std::string_view bytes, std::string& out);

// Appends the text of all of `bytes`: an unfinished character becomes U+FFFD.
void append_utf8_final(std::string_view bytes, std::string& out);

// Whether `bytes` are valid UTF-8 from the first to the last: none of them would be replaced.
bool is_utf8(std::string_view bytes);

// The character at the front of `text` (not empty, valid UTF-8) and its length in bytes.
struct Utf8Character {
  char32_t value;
  std::size_t bytes;
};
Utf8Character first_character(std::string_view text);

}  // namespace loci
