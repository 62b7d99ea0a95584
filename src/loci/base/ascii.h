// SPDX-License-Identifier: Apache-2.0
// ASCII letters and digits, independent of the locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace loci {

// `text` with A to Z replaced by a to z.
inline std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Whether they are the same text, where A is the same as a.
inline bool equal_ascii(std::string_view a, std::string_view b) { return lower_ascii(a) == lower_ascii(b); }

// Nothing but digits of hexadecimal numbers, 0 to 9 and a to f.
inline bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What may stand where a host does, a name or an address of either version, or nothing: at most 253 letters,
// digits and . - _ : %
inline bool may_be_host(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '%';
  };
  return text.size() <= 253 && std::all_of(text.begin(), text.end(), fits);
}

}  // namespace loci
