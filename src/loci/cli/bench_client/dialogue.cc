// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/dialogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "loci/base/json_reader.h"
#include "loci/base/units.h"

namespace loci {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kGeneratedTurns = 4;
constexpr std::uint32_t kSentenceWordsMin = 6;
constexpr std::uint32_t kSentenceWordsSpread = 9;

// Short, frequent words: one token each in the vocabularies of today's models.
constexpr std::array<const char*, 160> kWords = {
    "the",    "of",       "and",    "to",      "in",      "is",        "that",      "for",       "it",
    "as",     "was",      "with",   "be",      "by",      "on",        "not",       "he",        "this",
    "are",    "or",       "his",    "from",    "at",      "which",     "but",       "have",      "an",
    "had",    "they",     "you",    "were",    "their",   "one",       "all",       "we",        "can",
    "her",    "has",      "there",  "been",    "if",      "more",      "when",      "will",      "would",
    "who",    "so",       "no",     "time",    "people",  "city",      "water",     "house",     "world",
    "school", "state",    "family", "student", "group",   "country",   "problem",   "hand",      "part",
    "place",  "case",     "week",   "company", "system",  "program",   "question",  "work",      "night",
    "point",  "home",     "room",   "mother",  "area",    "money",     "story",     "fact",      "month",
    "lot",    "right",    "study",  "book",    "eye",     "job",       "word",      "business",  "issue",
    "side",   "kind",     "head",   "service", "friend",  "father",    "power",     "hour",      "game",
    "line",   "end",      "member", "law",     "car",     "name",      "president", "team",      "minute",
    "idea",   "body",     "back",   "parent",  "face",    "others",    "level",     "office",    "door",
    "health", "person",   "art",    "war",     "history", "party",     "result",    "change",    "morning",
    "reason", "research", "girl",   "moment",  "air",     "teacher",   "force",     "education", "old",
    "new",    "first",    "last",   "long",    "great",   "little",    "own",       "other",     "high",
    "small",  "large",    "next",   "early",   "young",   "important", "few",       "public",    "same",
    "able",   "river",    "road",   "light",   "green",   "table",     "market"};

Status malformed(std::string_view name, std::size_t line, std::string_view what) {
  return invalid_argument(fmt::format("line {}: {}", line, what), std::string(name));
}

// Adds one message; false: neither the user's nor the system's nor the assistant's.
bool add_message(Dialogue& dialogue, const std::string& role, const std::string& text) {
  if (role == "user" || role == "human") {
    dialogue.turns.push_back(text);
  } else if (role == "system" && dialogue.turns.empty()) {
    dialogue.system = text;
  } else {
    return role == "assistant" || role == "gpt" || role == "bot" || role == "system" || role == "tool";
  }
  return true;
}

Status read_messages(const Json& list, const char* role_key, const char* text_key, Dialogue& out) {
  if (!list.is_array()) return invalid_argument("expected a list of messages");
  for (const Json& message : list) {
    const bool whole = message.is_object() && message.contains(role_key) && message[role_key].is_string() &&
                       message.contains(text_key) && message[text_key].is_string();
    if (!whole) {
      return invalid_argument(fmt::format("expected messages with texts '{}' and '{}'", role_key, text_key));
    }
    const std::string role = message[role_key].get<std::string>();
    if (!add_message(out, role, message[text_key].get<std::string>())) {
      return invalid_argument(fmt::format("expected user, assistant or system; got the role '{}'", role));
    }
  }
  return {};
}

Result<Dialogue> read_dialogue(const Json& line) {
  Dialogue dialogue;
  if (!line.is_object()) return invalid_argument("expected a JSON object");
  if (line.contains("messages")) {
    LOCI_RETURN_IF_ERROR(read_messages(line["messages"], "role", "content", dialogue));
  } else if (line.contains("conversations")) {
    LOCI_RETURN_IF_ERROR(read_messages(line["conversations"], "from", "value", dialogue));
  } else if (line.contains("turns") && line["turns"].is_array()) {
    for (const Json& turn : line["turns"]) {
      if (!turn.is_string()) return invalid_argument("expected 'turns' to be a list of texts");
      dialogue.turns.push_back(turn.get<std::string>());
    }
  } else {
    return invalid_argument("expected one of 'messages', 'conversations' and 'turns'");
  }
  if (dialogue.turns.empty())
    return invalid_argument("expected at least one message of the user, found none");
  return dialogue;
}

void shuffle(std::vector<Dialogue>& dialogues, Random random) {
  for (std::size_t i = dialogues.size(); i > 1; --i) std::swap(dialogues[i - 1], dialogues[random.below(i)]);
}

Result<std::vector<Dialogue>> pick(std::vector<Dialogue> file, const WorkloadOptions& options) {
  shuffle(file, Random(mix64(options.seed)));
  std::vector<Dialogue> out;
  std::size_t next = 0;
  while (out.size() < options.conversations && next < file.size()) {
    Dialogue dialogue = std::move(file[next++]);
    while (dialogue.turns.size() < options.turns && next < file.size()) {
      std::ranges::move(file[next++].turns, std::back_inserter(dialogue.turns));
    }
    if (dialogue.turns.size() < options.turns) break;
    if (options.turns > 0) dialogue.turns.resize(options.turns);
    out.push_back(std::move(dialogue));
  }
  if (out.size() < options.conversations) {
    return invalid_argument(fmt::format("the file has {} dialogues, which are enough for {} conversations; "
                                        "expected enough for {}: ask for fewer, or for fewer turns",
                                        file.size(), out.size(), options.conversations),
                            "--conversations");
  }
  return out;
}

// Refuses more generated text than fits in memory, as all of it is made before the first request. `turns`:
// the generated ones of each conversation.
Status check_tokens(const WorkloadOptions& options, std::uint64_t turns) {
  const std::uint64_t each = options.private_prefix_tokens + turns * options.prompt_tokens;  // below 2^57
  if (each <= kSaidTokensMax / std::max(1u, options.conversations)) return {};
  return invalid_argument(
      fmt::format("expected texts of at most {} tokens in all, found {} conversations of {}: take fewer or "
                  "shorter ones",
                  format_count(kSaidTokensMax), format_count(options.conversations), format_count(each)),
      "--conversations");
}

}  // namespace

Result<std::vector<Dialogue>> read_dialogues(std::string_view text, std::string_view name) {
  if (text.starts_with("\x1f\x8b")) {
    return invalid_argument("is compressed; expected JSON lines (`zcat FILE | loci bench --dialogues -`)",
                            std::string(name));
  }
  std::vector<Dialogue> out;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const JsonRead<Json> read = read_json<Json>(line, {});
    if (read.fault == JsonFault::kLimit) return malformed(name, number, read.what);
    if (!read.ok()) return malformed(name, number, "is not JSON");
    Result<Dialogue> dialogue = read_dialogue(read.value);
    if (!dialogue.ok()) return malformed(name, number, dialogue.status().message());
    out.push_back(std::move(*dialogue));
  }
  if (out.empty()) return invalid_argument("holds no dialogue", std::string(name));
  return out;
}

const char* common_word(std::uint64_t number) { return kWords[number % kWords.size()]; }

std::string make_words(Random& random, std::uint32_t tokens) {
  std::string out;
  std::uint64_t sentence = 0;
  for (std::uint32_t i = 0; i < tokens; ++i) {
    if (sentence == 1) {
      out += '.';
      sentence = 0;
      continue;
    }
    if (sentence == 0) sentence = 2 + kSentenceWordsMin + random.below(kSentenceWordsSpread);
    --sentence;
    if (!out.empty()) out += ' ';
    out += kWords[random.below(kWords.size())];
  }
  return out;
}

Result<std::vector<Dialogue>> make_workload(std::vector<Dialogue> file, const WorkloadOptions& options) {
  const std::uint32_t turns = options.turns > 0 ? options.turns : kGeneratedTurns;
  LOCI_RETURN_IF_ERROR(check_tokens(options, file.empty() ? turns : 0));
  std::vector<Dialogue> out;
  if (!file.empty()) {
    LOCI_ASSIGN_OR_RETURN(out, pick(std::move(file), options));
  } else {
    for (std::uint32_t c = 0; c < options.conversations; ++c) {
      Random random(random_word(options.seed, 2 * std::uint64_t{c}));
      Dialogue dialogue;
      for (std::uint32_t t = 0; t < turns; ++t) {
        dialogue.turns.push_back(make_words(random, options.prompt_tokens));
      }
      out.push_back(std::move(dialogue));
    }
  }
  if (options.private_prefix_tokens > 0) {
    for (std::size_t c = 0; c < out.size(); ++c) {
      Random random(random_word(options.seed, 2 * c + 1));
      out[c].turns[0] = make_words(random, options.private_prefix_tokens) + "\n\n" + out[c].turns[0];
    }
  }
  return out;
}

}  // namespace loci
