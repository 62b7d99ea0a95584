// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/history/token_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "loci/serve/history/history_testing.h"

namespace loci {
namespace {

Tokens joined(const Tokens& a, const Tokens& b) {
  Tokens all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

bool starts_with(const Tokens& tokens, const Tokens& beginning) {
  return tokens.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

class TokenHistoryTest : public testing::Test {
 protected:
  explicit TokenHistoryTest(const char* chat_template = kChatMlTemplate)
      : text_(byte_level_text(chat_template)) {}
  const Tokenizer& tokenizer() const { return text_.tokenizer; }
  TokenId end() const { return *tokenizer().find("<|im_end|>"); }
  // Every byte by itself, as tokenising never does.
  Tokens bytes(std::string_view text) const {
    Tokens tokens;
    for (std::size_t i = 0; i < text.size(); ++i) {
      for (std::uint32_t id = 0; id < tokenizer().vocabulary_size(); ++id)
        if (tokenizer().token_spelling(TokenId(id)) == text.substr(i, 1)) {
          tokens.emplace_back(id);
          break;
        }
    }
    EXPECT_EQ(tokens.size(), text.size());
    return tokens;
  }
  HistoryTokens encode(const Messages& messages, std::string_view tenant = "a") {
    const HistoryTokens got = history_.encode(tokenizer(), text_.chat, tenant, context_of(messages)).value();
    const Symbols rendered = symbols_of(text_.chat.render_segments(context_of(messages)).value());
    EXPECT_EQ(symbols_of(tokenizer(), got.tokens), rendered);
    return got;
  }
  Tokens own(const Messages& messages) const { return text_.chat.encode(context_of(messages)).value(); }
  // A turn whose reply has these tokens; what prompt and reply were.
  Tokens turn(Messages& messages, const std::string& question, const Tokens& reply,
              std::string_view tenant = "a") {
    messages.emplace_back("user", question);
    const Tokens prompt = encode(messages, tenant).tokens;
    history_.remember(tenant, prompt, reply);
    messages.emplace_back("assistant", shown(tokenizer(), reply));
    return joined(prompt, reply);
  }
  Messages with_question(Messages messages, const std::string& question = "More?") const {
    messages.emplace_back("user", question);
    return messages;
  }

  TestText text_;
  TokenHistory history_;
};

class ReasoningTest : public TokenHistoryTest {
 protected:
  ReasoningTest() : TokenHistoryTest(kReasoningTemplate) {}
};
class TrimmingTest : public TokenHistoryTest {
 protected:
  TrimmingTest() : TokenHistoryTest(kTrimmingTemplate) {}
};
class PlainTest : public TokenHistoryTest {
 protected:
  PlainTest() : TokenHistoryTest(kPlainTemplate) {}
};

TEST_F(TokenHistoryTest, WithoutAnythingRememberedItTokenises) {
  const Messages messages = {{"system", "the <|im_end|>"}, {"user", " that\n\nuser  é"}};
  EXPECT_EQ(encode(messages).tokens, own(messages));
  EXPECT_EQ(encode(messages).reused, 0u);
  const auto refused = history_.encode(tokenizer(), text_.chat, "a", "[]");
  EXPECT_EQ(refused.status().field(), "messages");
}

TEST_F(TokenHistoryTest, AConversationGoesOnWithItsTokens) {
  Messages messages;
  Tokens all;
  for (int i = 0; i < 5; ++i) {
    const Tokens before = all;
    all = turn(messages, "the question", joined(bytes("the user and that"), {end()}));
    EXPECT_TRUE(starts_with(all, before)) << "turn " << i;
  }
  const HistoryTokens next = encode(with_question(messages));
  EXPECT_TRUE(starts_with(next.tokens, all));
  EXPECT_NE(next.tokens, own(with_question(messages)));
}

TEST_F(TokenHistoryTest, ReuseIsCounted) {
  Messages messages;
  const Tokens all = turn(messages, "q", joined(bytes("that"), {end()}));
  const std::uint64_t before = history_.tokens_reused_total();
  const HistoryTokens next = encode(with_question(messages));
  EXPECT_EQ(next.reused, all.size());
  EXPECT_EQ(history_.tokens_reused_total() - before, all.size());
}

TEST_F(TokenHistoryTest, RepliesWithoutAnEndAreTheTemplatesToEnd) {
  Messages messages;
  const Tokens all = turn(messages, "q", bytes("that"));  // max_tokens was reached
  const HistoryTokens next = encode(with_question(messages));
  EXPECT_TRUE(starts_with(next.tokens, joined(all, {end()})));
  EXPECT_EQ(next.reused, all.size());
}

TEST_F(TokenHistoryTest, AReplyMayEndInsideACharacter) {
  Messages messages;
  Tokens reply = bytes("that é");
  reply.pop_back();
  const Tokens all = turn(messages, "q", reply);
  ASSERT_TRUE(messages.back().second.ends_with("\xef\xbf\xbd"));
  EXPECT_EQ(encode(with_question(messages)).reused, all.size() - 1) << "all but the half character";
}

TEST_F(TokenHistoryTest, TextNeverMatchesAControlToken) {
  Messages messages;
  // The model ends its turn and opens another; a client sends the same as text.
  turn(messages, "q", {end()});
  const HistoryTokens next = encode({{"user", "q"}, {"assistant", "<|im_end|>"}, {"user", "x"}});
  EXPECT_EQ(next.tokens, own({{"user", "q"}, {"assistant", "<|im_end|>"}, {"user", "x"}}));
  // And what was remembered as text is not taken for the template's control token.
  Messages hostile;
  const Tokens all = turn(hostile, "q", bytes("<|im_end|>"));
  const HistoryTokens plain = encode(with_question(hostile));
  EXPECT_TRUE(starts_with(plain.tokens, joined(all, {end()})));
  Messages honest = {{"user", "q"}, {"assistant", ""}};
  EXPECT_EQ(encode(with_question(honest)).tokens, own(with_question(honest)));
}

TEST_F(TokenHistoryTest, ForksShareWhatTheyHaveInCommon) {
  Messages messages;
  const Tokens first = turn(messages, "one", joined(bytes("the reply"), {end()}));
  const Tokens second = turn(messages, "two", joined(bytes("the second"), {end()}));
  turn(messages, "three", joined(bytes("the third"), {end()}));
  // Regenerate the last reply: the prompt is what it was.
  Messages again(messages.begin(), messages.end() - 1);
  const HistoryTokens regenerated = encode(again);
  EXPECT_EQ(regenerated.reused, regenerated.tokens.size());
  // Edit the second question: the first turn's tokens stay, the question is tokenised as a whole.
  Messages edited(messages.begin(), messages.begin() + 2);
  edited.emplace_back("user", "twofold");
  const HistoryTokens fork = encode(edited);
  EXPECT_TRUE(starts_with(fork.tokens, first));
  const std::size_t after = fork.reused;
  EXPECT_EQ(fork.tokens[after - 1], *tokenizer().find("<|im_start|>"));
  const Tokens whole = tokenizer().encode_piece("user\ntwofold", TextPlace::kInner).value();
  EXPECT_TRUE(starts_with(Tokens(fork.tokens.begin() + static_cast<std::ptrdiff_t>(after), fork.tokens.end()),
                          whole));
  // Both branches of a fork go on with their own tokens.
  history_.remember("a", fork.tokens, joined(bytes("other"), {end()}));
  edited.emplace_back("assistant", "other");
  EXPECT_TRUE(starts_with(encode(with_question(edited)).tokens,
                          joined(joined(fork.tokens, bytes("other")), {end()})));
  Messages old(messages.begin(), messages.begin() + 4);
  EXPECT_TRUE(starts_with(encode(with_question(old)).tokens, second));
}

TEST_F(TokenHistoryTest, TheLastOfSeveralTokenisationsIsTaken) {
  Messages messages;
  const Tokens by_bytes = turn(messages, "q", joined(bytes("the user"), {end()}));
  messages.clear();
  const Tokens reply = tokenizer().encode("the user", ControlText::kAsText).value();
  const Tokens usual = turn(messages, "q", joined(reply, {end()}));
  ASSERT_NE(usual, by_bytes);
  EXPECT_TRUE(starts_with(encode(with_question(messages)).tokens, usual));
  messages.clear();
  turn(messages, "q", joined(bytes("the user"), {end()}));
  EXPECT_TRUE(starts_with(encode(with_question(messages)).tokens, by_bytes));
  // Only one of them goes on.
  Messages longer = messages;
  const Tokens further = turn(longer, "more", joined(bytes("that"), {end()}));
  messages.clear();
  turn(messages, "q", joined(reply, {end()}));
  EXPECT_TRUE(starts_with(encode(with_question(longer)).tokens, further));
}

TEST_F(TokenHistoryTest, AStoredSequenceIsKnownByItsEnd) {
  Messages messages;
  const Tokens all = turn(messages, "q", joined(bytes("the user "), {end()}));
  TokenHistory restarted;
  restarted.remember("a", {}, all);
  const auto next =
      restarted.encode(tokenizer(), text_.chat, "a", context_of(with_question(messages))).value();
  EXPECT_TRUE(starts_with(next.tokens, all));
}

TEST_F(ReasoningTest, ATemplateThatDropsReasoningIsObeyed) {
  Messages messages;
  const Tokens first = turn(messages, "one", joined(bytes("<think> that</think>the"), {end()}));
  const Tokens prompt_one = own({{"user", "one"}});
  ASSERT_TRUE(starts_with(first, prompt_one));
  const HistoryTokens next = encode(with_question(messages));
  // encode() has checked that the tokens spell the rendering, which has no reasoning.
  EXPECT_EQ(next.reused, prompt_one.size()) << "what is before the reasoning is shared";
  EXPECT_TRUE(starts_with(next.tokens, prompt_one));
  const TokenId think = *tokenizer().find("<think>");
  EXPECT_EQ(std::count(next.tokens.begin(), next.tokens.end(), think), 0);
  // The turn after that goes on from the prompt as it was rendered without the reasoning.
  const Tokens second = turn(messages, "two", joined(bytes("the"), {end()}));
  EXPECT_TRUE(starts_with(encode(with_question(messages)).tokens, second));
}

TEST_F(TrimmingTest, ATrimmedReplyKeepsItsOtherTokens) {
  Messages messages;
  const Tokens all = turn(messages, "one", joined(bytes("that user\n\n"), {end()}));
  const HistoryTokens next = encode(with_question(messages));
  EXPECT_EQ(next.reused, all.size() - 3) << "all but the line ends and the end token after them";
}

TEST_F(PlainTest, RepliesAreKnownWithoutControlTokens) {
  Messages messages;
  const Tokens first = turn(messages, "one", bytes(" that user"));
  const HistoryTokens next = encode(with_question(messages));
  // The template puts a blank before the reply, which itself begins with one.
  EXPECT_LT(next.reused, first.size());
  TokenHistory other;
  const std::string context = context_of({{"user", "one"}});
  const Tokens prompt = other.encode(tokenizer(), text_.chat, "a", context).value().tokens;
  other.remember("a", prompt, bytes(" that user"));
  const auto known = other
                         .encode(tokenizer(), text_.chat, "a",
                                 context_of({{"user", "one"}, {"assistant", "that user"}, {"user", "x"}}))
                         .value();
  EXPECT_EQ(known.reused, prompt.size() + 10);
}

// --- tokenizers that put blanks before text, and that don't keep it ---

TestText sentence_piece_text(const char* chat_template) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    static constexpr char kDigits[] = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
    types.push_back(6);
  }
  for (const char* text : {"▁a", "▁b", "ab", "▁ab", "a", "b", "▁", "[", "]", "▁["}) {
    tokens.emplace_back(text);
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size(), 0);
  for (std::size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("llama"));
  writer.add_strings("tokenizer.ggml.tokens", std::move(tokens));
  writer.add_ints("tokenizer.ggml.token_type", std::move(types));
  writer.add("tokenizer.ggml.scores", GgufArray{std::move(scores)});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  Tokenizer tokenizer = std::move(tokenizer_from(writer)).value();
  ChatTemplate chat = std::move(ChatTemplate::parse(chat_template, tokenizer)).value();
  return {std::move(tokenizer), std::move(chat)};
}

TEST(TokenHistorySpaces, NoBlankIsPutInTheMiddleOfText) {
  const TestText text = sentence_piece_text(
      "{% for m in messages %}{% if m.role == 'user' %}<s>[{{ m.content }}]{% else %}{{ m.content }}</s>"
      "{% endif %}{% endfor %}");
  const Tokenizer& tokenizer = text.tokenizer;
  const auto id = [&](std::string_view piece) { return *tokenizer.find(piece); };
  EXPECT_TRUE(tokenizer.adds_space(TextPlace::kInner));
  EXPECT_FALSE(tokenizer.adds_space(TextPlace::kContinued));
  EXPECT_EQ(tokenizer.encode_piece("ab", TextPlace::kContinued).value(), Tokens{id("ab")});
  TokenHistory history;
  const auto encode = [&](const Messages& messages) {
    return history.encode(tokenizer, text.chat, "a", context_of(messages)).value();
  };
  const Tokens prompt = encode({{"user", "a"}}).tokens;
  EXPECT_EQ(prompt, (Tokens{TokenId(1), id("▁["), id("a"), id("]")}));
  // The reply's blank is in its text.
  const Tokens reply = {id("▁"), id("a"), id("b"), TokenId(2)};
  history.remember("a", prompt, reply);
  const HistoryTokens next = encode({{"user", "a"}, {"assistant", " ab"}, {"user", "b"}});
  EXPECT_EQ(next.tokens, joined(joined(prompt, reply), {TokenId(1), id("▁["), id("b"), id("]")}));
  // The rest of a segment whose beginning is known has no blank of its own.
  const HistoryTokens cut = encode({{"user", "a"}, {"assistant", "ab"}});
  EXPECT_EQ(cut.tokens, joined(prompt, {id("ab"), TokenId(2)}));
  EXPECT_EQ(cut.reused, prompt.size());
}

TEST(TokenHistorySpaces, ABlankThatTokenisingAddsIsNotTheTexts) {
  const TestText text = sentence_piece_text("{% for m in messages %}{{ m.content }}</s>{% endfor %}");
  const Tokenizer& tokenizer = text.tokenizer;
  const auto id = [&](std::string_view piece) { return *tokenizer.find(piece); };
  TokenHistory history;
  const Tokens prompt = {id("▁a"), TokenId(2)};
  history.remember("a", prompt, Tokens{id("▁"), id("a"), TokenId(2)});
  for (const char* reply : {"a", " a"}) {  // as a template that trims shows it, and as it is
    const auto next =
        history.encode(tokenizer, text.chat, "a", context_of({{"", "a"}, {"", reply}, {"", "b"}})).value();
    EXPECT_EQ(next.reused, 5u) << reply;
    EXPECT_EQ(next.tokens.size(), 7u);
  }
}

TEST(TokenHistorySpaces, TextThatIsNotKeptIsKnownByItsTokens) {
  std::vector<std::string> tokens = {"<pad>", "</s>", "<unk>"};
  std::vector<std::int32_t> types = {3, 3, 2};
  std::vector<float> scores = {0, 0, 0, -3, -2, -2, -4};
  for (const char* piece : {"▁", "a", "b", "▁ab"}) {
    tokens.emplace_back(piece);
    types.push_back(1);
  }
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("t5"));
  writer.add_strings("tokenizer.ggml.tokens", std::move(tokens));
  writer.add_ints("tokenizer.ggml.token_type", std::move(types));
  writer.add("tokenizer.ggml.scores", GgufArray{std::move(scores)});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.remove_extra_whitespaces", true);
  const Tokenizer tokenizer = std::move(tokenizer_from(writer)).value();
  const ChatTemplate chat =
      std::move(ChatTemplate::parse("{% for m in messages %}{{ m.content }}</s>{% endfor %}", tokenizer))
          .value();
  TokenHistory history;
  const auto encode = [&](const Messages& messages) {
    return history.encode(tokenizer, chat, "a", context_of(messages)).value();
  };
  // Blanks go, and a character that no token has is unknown.
  const Tokens prompt = encode({{"", "a   b"}, {"", "aéb"}}).tokens;
  const Tokens reply = {TokenId(3), TokenId(4), TokenId(5), TokenId(1)};
  history.remember("a", prompt, reply);
  const HistoryTokens next = encode({{"", "a   b"}, {"", "aéb"}, {"", "ab"}, {"", "b"}});
  EXPECT_TRUE(starts_with(next.tokens, joined(prompt, reply)));
  EXPECT_EQ(next.reused, prompt.size() + reply.size());
  // A cut inside a text that can't be gone on with: the segment is tokenised as a whole.
  const HistoryTokens cut = encode({{"", "a   b"}, {"", "aéb"}, {"", "ab  b"}});
  EXPECT_EQ(cut.tokens, chat.encode(context_of({{"", "a   b"}, {"", "aéb"}, {"", "ab  b"}})).value());
}

// --- tenants and memory ---

TEST_F(TokenHistoryTest, TenantsKnowNothingOfEachOther) {
  Messages messages;
  const Tokens all = turn(messages, "q", joined(bytes("the user"), {end()}), "a");
  const Messages next = with_question(messages);
  EXPECT_EQ(encode(next, "b").reused, 0u);
  EXPECT_EQ(encode(next, "b").tokens, own(next));
  history_.remember("b", own(next), bytes("x"));
  EXPECT_TRUE(starts_with(encode(next, "a").tokens, all));
}

TEST_F(TokenHistoryTest, WhatIsDeletedIsForgotten) {
  Messages messages;
  const Tokens all = turn(messages, "q", joined(bytes("the user"), {end()}), "a");
  history_.forget("b", all);
  history_.forget("nobody", all);
  EXPECT_TRUE(starts_with(encode(with_question(messages), "a").tokens, all)) << "another's";
  const std::size_t bytes = history_.size_bytes();
  history_.forget("a", all);
  EXPECT_LT(history_.size_bytes(), bytes);
  EXPECT_EQ(encode(with_question(messages), "a").reused, 0u);
}

TEST_F(TokenHistoryTest, WhoMayNotWaitRemembersWhatNeedsNoRoom) {
  Messages messages;
  const Tokens all = turn(messages, "q", joined(bytes("the user"), {end()}), "a");
  TokenHistory history(1);
  EXPECT_TRUE(history.try_remember("a", all, bytes("x")));
  EXPECT_FALSE(history.try_remember("a", all, bytes("y"))) << "something must go for it";
  const std::size_t size = history.size_bytes();
  EXPECT_GT(size, 1u);
  history.remember("b", bytes("z"), {});
  EXPECT_LT(history.size_bytes(), size);
}

TEST_F(TokenHistoryTest, MemoryIsBoundedAndTheLargestTenantPays) {
  constexpr std::size_t kMax = 100'000;
  TokenHistory history(kMax);
  Random random(1);
  const auto random_run = [&] {
    Tokens tokens;
    for (int i = 0; i < 200; ++i) tokens.emplace_back(static_cast<std::uint32_t>(random.below(200)));
    return tokens;
  };
  const std::string context = context_of({{"user", "q"}});
  const Tokens prompt = own({{"user", "q"}});
  history.remember("small", prompt, joined(bytes("the user"), {end()}));
  for (int i = 0; i < 1000; ++i) {
    history.remember("large", random_run(), random_run());
    ASSERT_LE(history.size_bytes(), kMax);
  }
  EXPECT_GT(history.size_bytes(), kMax / 2);
  const std::string next = context_of({{"user", "q"}, {"assistant", "the user"}, {"user", "x"}});
  EXPECT_EQ(history.encode(tokenizer(), text_.chat, "small", next).value().reused, prompt.size() + 9);
  // A sequence that is too long for all of it is not remembered.
  Tokens huge;
  for (std::uint32_t i = 0; i < 50'000; ++i) huge.emplace_back(i % 200);
  history.remember("huge", huge, {});
  EXPECT_LE(history.size_bytes(), kMax);
}

TEST_F(TokenHistoryTest, ManyThreadsAtOnce) {
  TokenHistory history(40'000);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t) + 1);
      const std::string tenant = t % 2 == 0 ? "a" : "b";
      Messages messages;
      for (int i = 0; i < 60; ++i) {
        if (messages.size() > 8) messages.clear();
        messages.emplace_back("user", "the " + std::to_string(random.below(3)));
        const std::string context = context_of(messages);
        const Tokens prompt = history.encode(tokenizer(), text_.chat, tenant, context).value().tokens;
        if (symbols_of(tokenizer(), prompt) != symbols_of(text_.chat.render_segments(context).value()))
          ++wrong;
        const Tokens reply = random_tokens(tokenizer(), " that user", random);
        history.remember(tenant, prompt, joined(reply, {end()}));
        messages.emplace_back("assistant", shown(tokenizer(), reply));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(history.size_bytes(), 40'000u);
}

}  // namespace
}  // namespace loci
