// SPDX-License-Identifier: Apache-2.0
// Reads lines for `loci chat`: with editing and a history that lasts on a terminal, plainly elsewhere.
#pragma once

#include <optional>
#include <string>

namespace loci {

// One at a time in a process (libedit's state is global).
class LineReader {
 public:
  // `history_path`: where the history is kept; its folder is made where it is missing.
  LineReader(bool interactive, std::string history_path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Absent at the end of input (Ctrl-D). Ctrl-C drops the line and asks again.
  std::optional<std::string> read(const std::string& prompt);

 private:
  bool interactive_;
  std::string history_path_;
};

}  // namespace loci
