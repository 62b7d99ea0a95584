// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/line_reader.h"

#include <editline/readline.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

namespace loci {
namespace {

constexpr int kHistoryLines = 1000;

volatile std::sig_atomic_t interrupted = 0;
void note_interrupt(int) { interrupted = 1; }

// SIGINT interrupts a read of the terminal instead of ending the process.
class InterruptScope {
 public:
  InterruptScope() {
    interrupted = 0;
    struct sigaction action{};
    action.sa_handler = &note_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptScope() { sigaction(SIGINT, &before_, nullptr); }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_{};
};

}  // namespace

LineReader::LineReader(bool interactive, std::string history_path)
    : interactive_(interactive), history_path_(std::move(history_path)) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(history_path_).parent_path(), error);
  using_history();
  stifle_history(kHistoryLines);
  read_history(history_path_.c_str());
}

LineReader::~LineReader() {
  if (interactive_) write_history(history_path_.c_str());
}

std::optional<std::string> LineReader::read(const std::string& prompt) {
  if (!interactive_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  for (;;) {
    const InterruptScope scope;
    char* line = readline(prompt.c_str());
    if (interrupted != 0) {
      std::free(line);
      std::fputs("\n", stdout);
      continue;
    }
    if (line == nullptr) return std::nullopt;
    std::string text = line;
    std::free(line);
    if (!text.empty()) {
      add_history(text.c_str());
      write_history(history_path_.c_str());
    }
    return text;
  }
}

}  // namespace loci
