// SPDX-License-Identifier: Apache-2.0
// Random conversations with random tokenisations, against a model that tries every remembered sequence.
#include "loci/serve/history/history_match.h"
#include "loci/base/rounds_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "loci/serve/history/history_testing.h"
#include "loci/serve/history/token_history.h"

namespace loci {
namespace {

struct Sequence {
  Tokens prompt;
  Tokens reply;
  Tokens all() const {
    Tokens tokens = prompt;
    tokens.insert(tokens.end(), reply.begin(), reply.end());
    return tokens;
  }
};

bool is_control(std::uint32_t symbol) { return symbol >= 256; }

class NaiveHistory {
 public:
  explicit NaiveHistory(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void remember(Sequence sequence) { sequences_.push_back(std::move(sequence)); }

  // How many of the rendering's symbols can be had from what is remembered.
  std::size_t longest(const std::vector<ChatSegment>& segments) const {
    const Symbols wanted = symbols_of(segments);
    std::size_t best = 0;
    for (const Sequence& sequence : sequences_) {
      const Tokens all = sequence.all();
      for (std::size_t length = 1; length <= all.size(); ++length) {
        const std::span<const TokenId> beginning(all.data(), length);
        const Symbols spelled = symbols_of(tokenizer_, beginning);
        if (spelled.size() > wanted.size() || !std::equal(spelled.begin(), spelled.end(), wanted.begin()))
          break;
        if (spelled.size() > best && may_cut(beginning, wanted, spelled.size(), segments))
          best = spelled.size();
      }
    }
    return best;
  }

 private:
  bool may_cut(std::span<const TokenId> beginning, const Symbols& wanted, std::size_t at,
               const std::vector<ChatSegment>& segments) const {
    if (at > 0 && is_control(wanted[at - 1])) return true;
    const bool is_end = at == wanted.size() || is_control(wanted[at]);
    if (is_end && is_canonical(beginning, wanted, at, segments)) return true;
    if (!is_end && (wanted[at] & 0xc0) == 0x80) return false;
    for (const Sequence& other : sequences_) {
      const Tokens all = other.all();
      if (all.size() < beginning.size() || !std::equal(beginning.begin(), beginning.end(), all.begin()))
        continue;
      if (beginning.size() == other.prompt.size() || beginning.size() == all.size()) return true;
      if (beginning.size() > other.prompt.size() && (is_end || begins_apart(wanted, at))) return true;
    }
    return false;
  }

  static bool begins_apart(const Symbols& wanted, std::size_t at) {
    const std::uint32_t symbol = wanted[at];
    if (symbol == 0xef && at + 2 < wanted.size() && wanted[at + 1] == 0xbf && wanted[at + 2] == 0xbd)
      return true;
    return symbol < 0x80 && std::isalnum(static_cast<int>(symbol)) == 0 && symbol != '_';
  }

  // Whether the tokens since the last control token are the segment's own.
  bool is_canonical(std::span<const TokenId> beginning, const Symbols& wanted, std::size_t at,
                    const std::vector<ChatSegment>& segments) const {
    const auto segment = static_cast<std::size_t>(
        std::count_if(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(at), is_control));
    const Tokens own = tokenizer_.encode_piece(segments[segment].text, TextPlace::kInner).value();
    return beginning.size() >= own.size() &&
           std::equal(own.begin(), own.end(), beginning.end() - static_cast<std::ptrdiff_t>(own.size()));
  }

  const Tokenizer& tokenizer_;
  std::vector<Sequence> sequences_;
};

std::string random_text(Random& random, std::uint64_t pieces_max) {
  static constexpr const char* kPieces[] = {" the",       " that",    "it", "ing",       " ",
                                            "é",          "\n",       ".",  "user",      "<think>",
                                            "<|im_end|>", "</think>", "a",  "\U0001f600"};
  std::string text;
  for (std::uint64_t left = random.below(pieces_max); left > 0; --left)
    text += kPieces[random.below(std::size(kPieces))];
  return text;
}

// What a model might say: perhaps an end token, perhaps the half of a character at the end.
Tokens random_reply(const Tokenizer& tokenizer, Random& random) {
  Tokens reply = random_tokens(tokenizer, random_text(random, 7), random);
  switch (random.below(4)) {
    case 0: reply.push_back(*tokenizer.find("<|im_end|>")); break;
    case 1: reply.push_back(*tokenizer.find("<|endoftext|>")); break;
    case 2:
      if (!reply.empty()) reply.pop_back();
      break;
    default: break;
  }
  return reply;
}

// Another question, a fork, an edit, a regenerated reply, or something new.
void go_on(Messages& messages, std::vector<Messages>& known, Random& random) {
  const std::uint64_t kind = random.below(8);
  if (kind == 0) messages.clear();
  if (kind == 1 && !messages.empty()) messages.resize(random.below(messages.size()));
  if (kind == 2 && !messages.empty()) messages[random.below(messages.size())].second = random_text(random, 4);
  if (kind == 3 && !known.empty()) messages = known[random.below(known.size())];
  if (kind == 4 && !messages.empty()) {
    std::string& text = messages.back().second;
    text = text.substr(0, text.find_last_not_of(" \n") + 1);
  }
  if (messages.size() > 7) messages.clear();
  const bool is_regenerated = kind == 5 && !messages.empty() && messages.back().first == "user";
  if (!is_regenerated) messages.emplace_back("user", random_text(random, 5));
}

struct Seen {
  std::uint64_t longer = 0;       // prompts of which most was remembered
  std::uint64_t unlike = 0;       // and whose tokens are not those of tokenising
  std::uint64_t inside_text = 0;  // matches that were cut inside a segment
};

void check_conversations(const char* chat_template, std::uint64_t seed, Seen& seen) {
  const TestText text = byte_level_text(chat_template);
  const Tokenizer& tokenizer = text.tokenizer;
  Random random(seed);
  TokenHistory history;
  NaiveHistory naive(tokenizer);
  std::vector<Messages> known;
  Messages messages;
  for (int turn = 0; turn < 30; ++turn) {
    go_on(messages, known, random);
    const std::string context = context_of(messages);
    const std::vector<ChatSegment> segments = text.chat.render_segments(context).value();
    const HistoryTokens got = history.encode(tokenizer, text.chat, "a", context).value();
    const Symbols rendered = symbols_of(segments);
    ASSERT_EQ(symbols_of(tokenizer, got.tokens), rendered) << context;
    const Symbols reused = symbols_of(tokenizer, std::span(got.tokens).first(got.reused));
    ASSERT_EQ(reused.size(), naive.longest(segments))
        << "seed " << seed << " turn " << turn << " " << context;
    // What is not reused is tokenised segment by segment, from the cut on.
    const Tokens own = text.chat.encode(context).value();
    if (got.reused == 0) {
      ASSERT_EQ(got.tokens, own);
    }
    seen.longer += reused.size() * 2 > rendered.size() ? 1 : 0;
    seen.unlike += got.tokens != own ? 1 : 0;
    seen.inside_text +=
        !reused.empty() && reused.size() < rendered.size() && !is_control(reused.back()) ? 1 : 0;
    Sequence sequence{.prompt = got.tokens, .reply = random_reply(tokenizer, random)};
    history.remember("a", sequence.prompt, sequence.reply);
    messages.emplace_back("assistant", shown(tokenizer, sequence.reply));
    naive.remember(std::move(sequence));
    known.push_back(messages);
  }
}

TEST(HistoryMatch, EqualsTryingEverySequence) {
  Seen seen;
  std::uint64_t seed = 0;
  for (const char* chat_template : {kChatMlTemplate, kTrimmingTemplate, kReasoningTemplate, kPlainTemplate}) {
    for (std::uint64_t i = 0; i < test_rounds(40); ++i)
      ASSERT_NO_FATAL_FAILURE(check_conversations(chat_template, ++seed, seen));
  }
  EXPECT_GT(seen.longer, test_rounds(1000));
  EXPECT_GT(seen.unlike, test_rounds(1000));
  EXPECT_GT(seen.inside_text, test_rounds(300));
}

TEST(HistoryMatch, WorkIsBoundedWhereEveryTokenisationIsRemembered) {
  const TestText text = byte_level_text();
  TokenTrie trie;
  Random random(1);
  std::string said;
  for (int i = 0; i < 40; ++i) said += " that";
  for (std::uint64_t i = 0; i < test_rounds(3000); ++i)
    trie.remember({}, random_tokens(text.tokenizer, said, random));
  const std::vector<ChatSegment> segments = {{.text = said + "!", .control = {}}};
  const HistoryMatch match = match_history(trie, text.tokenizer, segments, EncodedSegments(1));
  EXPECT_EQ(match.text_bytes, said.size());
  // Of a time that is over nothing more is looked for.
  const HistoryMatch late = match_history(trie, text.tokenizer, segments, EncodedSegments(1), {});
  EXPECT_EQ(late.text_bytes, 0u);
  EXPECT_EQ(late.segment, 0u);
  EXPECT_TRUE(late.tokens.empty());
}

// A busy machine keeps a thread waiting for longer than that.
TEST(HistoryMatch, ItsTimeDoesNotPassWhileItsThreadWaits) {
  const TestText text = byte_level_text();
  TokenTrie trie;
  const std::string said = "that it was";
  trie.remember({}, text.tokenizer.encode_piece(said, TextPlace::kInner).value());
  const std::vector<ChatSegment> segments = {{.text = said, .control = {}}};
  const std::chrono::nanoseconds until = thread_time() + std::chrono::milliseconds(20);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  EXPECT_FALSE(match_history(trie, text.tokenizer, segments, EncodedSegments(1), until).tokens.empty());
}

}  // namespace
}  // namespace loci
