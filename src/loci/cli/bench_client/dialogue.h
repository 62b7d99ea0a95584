// SPDX-License-Identifier: Apache-2.0
// What `loci bench` says to a server: dialogues from a file or made from words, each behind a private
// document. Pure: the same input and seed give the same text. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/status.h"

namespace loci {

// The user's side of a conversation; the replies are the server's own.
struct Dialogue {
  std::string system;              // empty: none
  std::vector<std::string> turns;  // what the user says, at least one
  // Of each turn; empty: as long as the run's options say.
  std::vector<std::uint32_t> reply_tokens = {};
  // Turns that are all of their prompt, whatever was said before; empty: none is.
  std::vector<bool> alone = {};
};

// One JSON object a line, of any of these forms; other fields are not looked at:
//   {"messages": [{"role": "user", "content": "..."}, ...]}          OpenAI's, MT-Bench-101
//   {"conversations": [{"from": "human", "value": "..."}, ...]}      ShareGPT
//   {"turns": ["...", ...]}                                          MT-Bench
// Empty lines are skipped. Errors: kInvalidArgument naming `name` and the line.
Result<std::vector<Dialogue>> read_dialogues(std::string_view text, std::string_view name);

// One of some common words; equal numbers give equal words.
const char* common_word(std::uint64_t number);
// About `tokens` tokens of common English words in sentences: the usual vocabularies have each word (with its
// space) and each full stop as one token.
std::string make_words(Random& random, std::uint32_t tokens);

inline constexpr std::uint64_t kSaidTokensMax = 200'000'000;  // of all texts that one run sends

struct WorkloadOptions {
  std::uint32_t conversations = 16;
  // User turns of each conversation. 0: as many as the file's dialogue has, or 4 where there is no file.
  std::uint32_t turns = 0;
  std::uint32_t prompt_tokens = 50;         // of a turn, where there is no file
  std::uint32_t private_prefix_tokens = 0;  // of the document in front of a conversation's first turn
  std::uint64_t seed = 1;
};

// The conversations of one run. From `file`'s dialogues, in an order that the seed draws; where one is too
// short for `turns`, the next one's turns follow it; each dialogue is used once. Without dialogues, made
// from words. Errors: kInvalidArgument where the file has too few dialogues, or where more than
// kSaidTokensMax tokens would be made.
Result<std::vector<Dialogue>> make_workload(std::vector<Dialogue> file, const WorkloadOptions& options);

}  // namespace loci
