// SPDX-License-Identifier: Apache-2.0
// From tokens to what a client sees, with a tiny random model's tokenizer.
#include "loci/serve/generation/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

class ChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.file("tiny.gguf");
    ASSERT_TRUE(make_random_model({}).value().write_file(path).ok());
    model_.emplace(load_model(path).value());
  }
  const Tokenizer& tokenizer() const { return model_->tokenizer; }
  std::vector<TokenId> encode(std::string_view text) const {
    return tokenizer().encode(text, ControlText::kAsText).value();
  }
  // Every byte a token of its own: characters and stop strings are split wherever they can be.
  std::vector<TokenId> encode_bytes(std::string_view text) const {
    std::vector<TokenId> tokens;
    for (const char byte : text) {
      for (std::uint32_t id = 0; id < tokenizer().vocabulary_size(); ++id) {
        if (!tokenizer().is_control(TokenId(id)) &&
            tokenizer().token_bytes(TokenId(id)) == std::string(1, byte)) {
          tokens.emplace_back(id);
          break;
        }
      }
    }
    EXPECT_EQ(tokens.size(), text.size());
    return tokens;
  }

  TestFolder folder_;
  std::optional<Model> model_;
};

struct Shown {
  std::string text;
  std::string tokens;  // of the log-probabilities
  bool stopped = false;
};

std::string text_of(const OutputDelta& delta) {
  std::string text;
  for (const OutputPiece& piece : delta.pieces) {
    if (const auto* one = std::get_if<TextPiece>(&piece)) text += one->text;
  }
  return text;
}

Shown run(const Tokenizer& tokenizer, const ChoiceOptions& options, const std::vector<TokenId>& tokens) {
  Choice choice(tokenizer, options);
  Shown shown;
  const auto take = [&] {
    const OutputDelta delta = choice.take();
    shown.text += text_of(delta);
    for (const LogprobEntry& entry : delta.logprobs) shown.tokens += entry.bytes;
  };
  for (const TokenId token : tokens) {
    choice.push({.token = token});
    take();
  }
  choice.finish();
  take();
  shown.stopped = choice.stopped();
  return shown;
}

TEST_F(ChoiceTest, TextIsWholeCharacters) {
  const std::string text = "naïve — 😀!";
  Choice choice(tokenizer(), {});
  std::string shown;
  for (const TokenId token : encode_bytes(text)) {
    choice.push({.token = token});
    shown += text_of(choice.take());
    EXPECT_TRUE(parse_json("\"" + shown + "\"").ok()) << shown;  // valid UTF-8
  }
  EXPECT_EQ(shown, text);
}

TEST_F(ChoiceTest, StopStringsAreFoundAcrossTokens) {
  for (const auto& tokens : {encode("one two\nUser: three"), encode_bytes("one two\nUser: three")}) {
    const Shown shown = run(tokenizer(), {.stop = {"\nUser:"}, .logprobs = true}, tokens);
    EXPECT_EQ(shown.text, "one two");
    EXPECT_TRUE(shown.stopped);
    // No token that lies inside the stop string shows up among the log-probabilities.
    EXPECT_EQ(shown.tokens.find("User"), std::string::npos) << shown.tokens;
  }
}

TEST_F(ChoiceTest, LogprobsSpellWhatIsShown) {
  const Shown shown = run(tokenizer(), {.stop = {"never"}, .logprobs = true}, encode_bytes("a nev é"));
  EXPECT_EQ(shown.text, "a nev é");
  EXPECT_EQ(shown.tokens, "a nev é");
}

TEST_F(ChoiceTest, StopTokensHaveNoText) {
  std::vector<TokenId> tokens = encode_bytes("ab");
  const Shown shown = run(tokenizer(), {.stop_tokens = {tokens[1]}, .logprobs = true}, tokens);
  EXPECT_EQ(shown.text, "a");
  EXPECT_EQ(shown.tokens, "a");
  ASSERT_FALSE(tokenizer().end_tokens().empty());
  tokens.push_back(tokenizer().end_tokens()[0]);
  Choice choice(tokenizer(), {.stop_tokens = tokenizer().end_tokens()});
  for (const TokenId token : tokens) choice.push({.token = token});
  choice.finish();
  EXPECT_EQ(text_of(choice.take()), "ab");
  EXPECT_EQ(choice.tokens(), 3u);
}

TEST_F(ChoiceTest, StopStringsBeforeMinTokensAreText) {
  const Shown shown = run(tokenizer(), {.stop = {"b"}, .min_tokens = 3}, encode_bytes("abcb"));
  EXPECT_EQ(shown.text, "abc");
  EXPECT_TRUE(shown.stopped);
}

TEST_F(ChoiceTest, AnUnfinishedCharacterAtTheEndIsShownAsSuch) {
  std::vector<TokenId> tokens = encode_bytes("aé");
  tokens.pop_back();
  EXPECT_EQ(run(tokenizer(), {}, tokens).text, "a\xef\xbf\xbd");
}

TEST_F(ChoiceTest, TokenBordersDoNotMatter) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += static_cast<char>('a' + random.below(3));
    const std::vector<std::string> stops = {text.substr(random.below(15), 1 + random.below(5)), "zz"};
    const Shown whole = run(tokenizer(), {.stop = stops}, encode(text));
    const Shown bytes = run(tokenizer(), {.stop = stops}, encode_bytes(text));
    ASSERT_EQ(whole.text, bytes.text);
    ASSERT_TRUE(whole.stopped);
  }
}

}  // namespace
}  // namespace loci
