// SPDX-License-Identifier: Apache-2.0
// Text of others (a model's reply, a file's names, a server's errors) for a terminal, where control
// characters could rewrite what stands there, or type for whoever sits before it.
//
// A '?' stands for each control character: C0, DEL and C1, the last as U+0080 to U+009F in UTF-8 or as a
// byte of its own. All else stays as it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace loci {

// What becomes of line ends and tabs: they stay, or count as control characters, for text in one line.
enum class LineEnds : std::uint8_t { kKeep, kReplace };

std::string printable(std::string_view text, LineEnds ends);

// `text` with every byte that is no visible ASCII character or blank written as \xNN: for logs.
std::string visible_ascii(std::string_view text);

// The same for a text that comes in pieces, which may part characters. Thread-compatible.
class PrintablePieces {
 public:
  explicit PrintablePieces(LineEnds ends) : ends_(ends) {}

  // What can be shown of all pieces so far and was not returned yet.
  std::string take(std::string_view piece);
  // What is left at the end of the text; a new text may begin.
  std::string finish();

 private:
  void append(char letter, std::string& out);

  LineEnds ends_;
  bool is_held_ = false;  // the first byte that a C1 has, whose second one decides
  int missing_ = 0;       // bytes of the character that has begun
};

}  // namespace loci
