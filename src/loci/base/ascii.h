// SPDX-License-Identifier: Apache-2.0
// ASCII letters, independent of the locale.
#pragma once

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

}  // namespace loci
