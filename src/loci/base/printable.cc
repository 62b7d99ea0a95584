// SPDX-License-Identifier: Apache-2.0
#include "loci/base/printable.h"

#include <fmt/format.h>

namespace loci {
namespace {

constexpr unsigned char kFirstOfC1 = 0xc2;  // and the second is 0x80 to 0x9f

}  // namespace

void PrintablePieces::append(char letter, std::string& out) {
  const auto byte = static_cast<unsigned char>(letter);
  const bool is_c1 = byte >= 0x80 && byte < 0xa0;
  if (is_held_) {
    is_held_ = false;
    if (is_c1) {
      missing_ = 0;
      out += '?';
      return;
    }
    out += static_cast<char>(kFirstOfC1);
  }
  if (byte == kFirstOfC1) {
    is_held_ = true;
    missing_ = 1;
  } else if (byte >= 0xc0) {
    missing_ = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    out += letter;
  } else if (byte >= 0x80) {
    out += is_c1 && missing_ == 0 ? '?' : letter;
    if (missing_ > 0) --missing_;
  } else {
    const bool is_kept = ends_ == LineEnds::kKeep && (letter == '\n' || letter == '\t');
    out += (byte < 0x20 && !is_kept) || byte == 0x7f ? '?' : letter;
    missing_ = 0;
  }
}

std::string PrintablePieces::take(std::string_view piece) {
  std::string out;
  for (const char letter : piece) append(letter, out);
  return out;
}

std::string PrintablePieces::finish() {
  const bool is_cut = is_held_;
  is_held_ = false;
  missing_ = 0;
  return is_cut ? "?" : "";
}

std::string printable(std::string_view text, LineEnds ends) {
  PrintablePieces pieces(ends);
  std::string out = pieces.take(text);
  return out + pieces.finish();
}

std::string visible_ascii(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= ' ' && c < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace loci
