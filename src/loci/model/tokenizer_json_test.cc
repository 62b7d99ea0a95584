// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "loci/base/random.h"
#include "loci/model/memory_source_testing.h"
#include "loci/model/text_testing.h"
#include "loci/model/vocabulary.h"

namespace loci {
namespace {

using nlohmann::json;

Result<Tokenizer> make(const json& tokenizer, const std::string& config = "{}", std::uint64_t rows = 0) {
  return Tokenizer::from_tokenizer_json(tokenizer_source(tokenizer.dump(), config, rows));
}

json added(std::uint32_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// GPT-2's tokenizer.json, from its GGUF vocabulary.
json gpt2_json(const Vocabulary& vocabulary) {
  json vocab = json::object();
  for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) vocab[vocabulary.tokens[id]] = id;
  return {{"added_tokens", {added(50256, "<|endoftext|>", true)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"post_processor", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}}},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", vocabulary.merges}}}};
}

TEST(TokenizerJson, EqualsTheGgufVocabularyOfGpt2) {
  const GgufFile file =
      GgufFile::open(environment("LOCI_BINARY_DIR") + "/testdata/ggml-vocab-gpt-2.gguf").value();
  const Tokenizer theirs = Tokenizer::from_gguf(file).value();
  const auto ours =
      make(gpt2_json(read_vocabulary(file).value()), R"({"eos_token": {"content": "<|endoftext|>"}})");
  ASSERT_TRUE(ours.ok()) << ours.status().to_string();
  EXPECT_EQ(ours->vocabulary_size(), theirs.vocabulary_size());
  EXPECT_EQ(numbers(ours->end_tokens()), numbers(theirs.end_tokens()));
  EXPECT_EQ(ours->control_texts(), theirs.control_texts());
  for (std::uint32_t id = 0; id < theirs.vocabulary_size(); ++id)
    ASSERT_EQ(ours->token_bytes(TokenId(id)), theirs.token_bytes(TokenId(id)));
  std::istringstream rows(read_file(source_file("tests/data/text/gpt-2.jsonl")));
  int count = 0;
  for (std::string line; std::getline(rows, line); ++count) {
    const auto row = json::parse(line);
    const auto text = row["text"].get<std::string>();
    EXPECT_EQ(encode(*ours, text), row["ids"].get<std::vector<std::uint32_t>>()) << text;
    const std::string mixed = text + "<|endoftext|>" + text;
    EXPECT_EQ(encode(*ours, mixed), encode(theirs, mixed)) << text;
    EXPECT_EQ(encode(*ours, mixed, ControlText::kAsControl), encode(theirs, mixed, ControlText::kAsControl));
  }
  EXPECT_EQ(count, 47);
}

// LOCI_TOKENIZERS names a folder that tests/golden/fetch_tokenizers.sh fills with published tokenizers.
TEST(TokenizerJson, EqualsTheGgufVocabulariesOfPublishedModels) {
  const std::string folder = environment("LOCI_TOKENIZERS"), vocabularies = environment("LOCI_VOCABULARIES");
  if (folder.empty() || vocabularies.empty())
    GTEST_SKIP()
        << "left to another part (published vocabularies): LOCI_TOKENIZERS or LOCI_VOCABULARIES is not set";
  for (const auto& [name, vocabulary] : {std::pair{"qwen3", "qwen2"}, std::pair{"llama3", "llama-bpe"}}) {
    const std::string at = folder + "/" + name + "/";
    const auto tokenizer = Tokenizer::from_tokenizer_json(
        tokenizer_source(read_file(at + "tokenizer.json"), read_file(at + "tokenizer_config.json")));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
    const GgufFile file = GgufFile::open(vocabularies + "/ggml-vocab-" + vocabulary + ".gguf").value();
    const Tokenizer theirs = Tokenizer::from_gguf(file).value();
    const std::string texts = read_file(vocabularies + "/ggml-vocab-" + vocabulary + ".gguf.inp");
    const std::string separator = "\n__ggml_vocab_test__\n";
    std::size_t at_text = 0, count = 0;
    for (std::size_t end; (end = texts.find(separator, at_text)) != std::string::npos;
         at_text = end + separator.size(), ++count) {
      const std::string text = texts.substr(at_text, end - at_text);
      EXPECT_EQ(encode(*tokenizer, text), encode(theirs, text)) << name << ": " << text;
    }
    EXPECT_GT(count, 40u);
  }
}

// SentencePiece as converters of today write it: blanks only before the first piece of a text.
json metaspace_json(const std::string& scheme) {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  std::uint32_t next = 3;
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = next++;
  for (const char* piece : {"▁", "a", "b", "c", "<", "/", "s", ">", "▁a", "ab", "</", "</s", "▁ab"})
    vocab[piece] = next++;
  return {
      {"added_tokens",
       {added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true),
        added(next, "<think>", false)}},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        // The last ones would make a control token of plain text.
        {"merges", json::parse(R"([["▁", "a"], ["a", "b"], ["▁a", "b"], ["<", "/"], ["</", "s"], ["</s", ">"],
                                       ["<s", ">"]])")}}}};
}

TEST(TokenizerJson, PutsBlanksWhereItsPreTokenizerSays) {
  json first = metaspace_json("first");
  const auto tokenizer = make(first, R"({"bos_token": "<s>", "eos_token": "</s>"})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_TRUE(tokenizer->add_bos()) << "its post-processor puts it there";
  EXPECT_EQ(tokenizer->bos(), TokenId(1));
  EXPECT_EQ(numbers(tokenizer->end_tokens()), std::vector<std::uint32_t>{2});
  const auto id = [&](std::string_view text) { return tokenizer->find(text).value().value; };
  EXPECT_EQ(encode(*tokenizer, "ab"), std::vector<std::uint32_t>{id("▁ab")});
  EXPECT_EQ(encode(*tokenizer, "ab<s>ab", ControlText::kAsControl),
            (std::vector<std::uint32_t>{id("▁ab"), 1, id("ab")}));
  EXPECT_EQ(encode(*tokenizer, "<s>ab", ControlText::kAsControl), (std::vector<std::uint32_t>{1, id("ab")}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab é", ControlText::kAsText).value(), ControlText::kAsText)
                .value(),
            "ab é");
  first["pre_tokenizer"]["prepend_scheme"] = "always";
  const auto made = make(first);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Tokenizer& always = *made;
  EXPECT_EQ(encode(always, "<s>ab", ControlText::kAsControl), (std::vector<std::uint32_t>{1, id("▁ab")}));
}

TEST(TokenizerJson, PutsNoBlankWhereTextGoesOn) {
  json model = metaspace_json("first");
  const auto check = [&](bool inner_has_blank) {
    const auto tokenizer = make(model);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const auto id = [&](std::string_view text) { return tokenizer->find(text).value().value; };
    const auto piece = [&](TextPlace place) { return numbers(tokenizer->encode_piece("ab", place).value()); };
    EXPECT_EQ(piece(TextPlace::kFirst), std::vector<std::uint32_t>{id("▁ab")});
    EXPECT_EQ(piece(TextPlace::kInner), std::vector<std::uint32_t>{id(inner_has_blank ? "▁ab" : "ab")});
    EXPECT_EQ(piece(TextPlace::kContinued), std::vector<std::uint32_t>{id("ab")});
    EXPECT_TRUE(tokenizer->adds_space(TextPlace::kFirst));
    EXPECT_EQ(tokenizer->adds_space(TextPlace::kInner), inner_has_blank);
    EXPECT_FALSE(tokenizer->adds_space(TextPlace::kContinued));
  };
  check(false);
  model["pre_tokenizer"]["prepend_scheme"] = "always";
  check(true);
  // As converters wrote it before: the normaliser puts it there.
  model["pre_tokenizer"] = nullptr;
  model["normalizer"] = {{"type", "Sequence"},
                         {"normalizers",
                          {{{"type", "Prepend"}, {"prepend", "▁"}},
                           {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  check(true);
  model["normalizer"] = nullptr;
  model["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", true}, {"split", false}};
  check(true);
}

TEST(TokenizerJson, PlainTextNeverControls) {
  json model = metaspace_json("never");
  const auto tokenizer = make(model).value();
  const std::uint32_t think = tokenizer.find("<think>").value().value;
  EXPECT_FALSE(tokenizer.is_control(TokenId(think)));
  Random random(5);
  const char* parts[] = {"<s>", "</s>", "<think>", "<unk>", "a", "b", " ", "</", "s>", "é", "\n"};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::uint64_t left = random.below(8); left > 0; --left)
      text += parts[random.below(std::size(parts))];
    const auto plain = tokenizer.encode(text, ControlText::kAsText);
    ASSERT_TRUE(plain.ok());
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const TokenId token : *plain) {
      ASSERT_FALSE(tokenizer.is_control(token)) << text;
      streamed += decoder.push(token);
    }
    ASSERT_EQ(streamed + decoder.finish(), text);
  }
  EXPECT_EQ(encode(tokenizer, "<think>"), std::vector<std::uint32_t>{think});
}

json unigram_json() {
  return {{"added_tokens", {added(0, "<unk>", true), added(1, "</s>", true)}},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}}},
          {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}}},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"vocab",
             json::parse(R"([["<unk>", 0.0], ["</s>", 0.0], ["▁", -3], ["a", -2], ["b", -2], ["ab", -3.5],
                                      ["▁ab", -4], ["bb", -5], ["<", -1], ["/", -1], ["s", -1], [">", -1]])")}}}};
}

TEST(TokenizerJson, TakesTheBestPathOfPieces) {
  const auto tokenizer = make(unigram_json(), R"({"eos_token": "</s>"})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  // "▁ab" -4 beats "▁" + "ab" -6.5; "abb": "▁ab" + "b" -6 beats "▁" + "a" + "bb" -10.
  EXPECT_EQ(encode(*tokenizer, "ab"), (std::vector<std::uint32_t>{6}));
  EXPECT_EQ(encode(*tokenizer, "abb"), (std::vector<std::uint32_t>{6, 4}));
  EXPECT_EQ(encode(*tokenizer, "b ab"), (std::vector<std::uint32_t>{2, 4, 6}));
  EXPECT_EQ(encode(*tokenizer, "ébxx"), (std::vector<std::uint32_t>{2, 0, 4, 0}))
      << "unknown ones in a row are one";
  // "</s>" scores best, and is no piece of plain text.
  EXPECT_EQ(encode(*tokenizer, "a</s>"), (std::vector<std::uint32_t>{2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(encode(*tokenizer, "a</s>", ControlText::kAsControl), (std::vector<std::uint32_t>{2, 3, 1}));
}

TEST(TokenizerJson, HasATokenForEachRowOfTheEmbedding) {
  const auto padded = make(unigram_json(), "{}", 20).value();
  EXPECT_EQ(padded.vocabulary_size(), 20u);
  EXPECT_EQ(padded.token_bytes(TokenId(19)), "[PAD19]");
  for (const std::uint32_t token : encode(padded, "[PAD19]")) EXPECT_NE(token, 19u);
  json more = unigram_json();
  more["added_tokens"].push_back(added(12, "<image>", true));
  EXPECT_EQ(make(more).value().vocabulary_size(), 13u);
  const auto cut = make(more, "{}", 12).value();
  EXPECT_EQ(cut.vocabulary_size(), 12u);
  EXPECT_EQ(cut.find("<image>"), std::nullopt);
  EXPECT_EQ(make(more, "{}", 11).status().field(), "tokenizer.json: model.vocab");
}

TEST(TokenizerJson, BlanksBesideAControlTokenBelongToIt) {
  json model = unigram_json();
  model["added_tokens"][1]["rstrip"] = true;
  model["added_tokens"][1]["lstrip"] = true;
  const auto tokenizer = make(model).value();
  EXPECT_EQ(encode(tokenizer, "a \n</s>  b", ControlText::kAsControl),
            (std::vector<std::uint32_t>{2, 3, 1, 2, 4}));
}

// A character is another token where it begins a word, so tokens show where text was cut.
json cut_json(const std::vector<std::string>& characters, const json& pre_tokenizer) {
  json vocab = {{"<unk>", 0}};
  for (const std::string& character : characters) {
    vocab[character] = vocab.size();
    vocab["##" + character] = vocab.size();
  }
  return {{"added_tokens", {added(0, "<unk>", true)}},
          {"pre_tokenizer", pre_tokenizer},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"continuing_subword_prefix", "##"},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

// These are recognised and cut in linear time. In a group they are not, and take their own.
TEST(TokenizerJson, PatternsThatAreWalkedCutAsTheyAreWritten) {
  const std::vector<std::string> characters = {"1",      "2",      "\u0663", "\u00bd", "a", "_",
                                               "\u0301", "\u00e9", "\u4e00", "\u00a0", " ", "\n",
                                               "\r",     "\t",     "\u2028", "-"};
  const auto split = [](const std::string& pattern) {
    return json{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  const auto sequence = [](const json& first, const json& second) {
    return json{{"type", "Sequence"}, {"pretokenizers", {first, second}}};
  };
  Random random(3);
  for (const std::string pattern : {R"((?=(\d{3})+(?!\d)))", R"(\d{1,3}(?=(?:\d{3})*\b))",
                                    R"(\p{N}{1,3}(?=(?:\p{N}{3})*\z))", R"(\s+$)"}) {
    const std::string other = pattern == R"(\s+$)" ? "[\r\n]" : R"(\p{N}+)";
    for (const bool alone : {true, false}) {
      const json walked = alone ? split(pattern) : sequence(split(other), split(pattern));
      const json written =
          alone ? split("(?:" + pattern + ")") : sequence(split(other), split("(?:" + pattern + ")"));
      const auto fast = make(cut_json(characters, walked));
      const auto slow = make(cut_json(characters, written));
      ASSERT_TRUE(fast.ok()) << fast.status().to_string();
      ASSERT_TRUE(slow.ok()) << slow.status().to_string();
      for (int i = 0; i < 4000; ++i) {
        // Few kinds of characters in a text, so that there are runs.
        const std::string kinds[] = {characters[random.below(characters.size())],
                                     characters[random.below(characters.size())], characters[random.below(5)],
                                     characters[9 + random.below(6)]};
        std::string text;
        for (std::uint64_t left = random.below(14); left > 0; --left) text += kinds[random.below(4)];
        ASSERT_EQ(encode(*fast, text), encode(*slow, text)) << pattern << " in '" << text << "'";
      }
    }
  }
}

TEST(TokenizerJson, GenerationConfigAddsEnds) {
  MemorySource source = tokenizer_source(unigram_json().dump());
  source.values["tokenizer.ggml.end_token_ids"] = GgufArray{std::vector<std::int32_t>{7, 1, 99}};
  const auto tokenizer = Tokenizer::from_source(source).value();
  EXPECT_EQ(numbers(tokenizer.end_tokens()), (std::vector<std::uint32_t>{7, 1}));
  EXPECT_TRUE(tokenizer.is_control(TokenId(7))) << "what ends a generation is not for users to write";
  for (const std::uint32_t token : encode(tokenizer, "bb")) EXPECT_NE(token, 7u);
}

TEST(TokenizerJson, NamesTheFieldAtFault) {
  const auto expect_field = [](const Result<Tokenizer>& tokenizer, const std::string& field) {
    ASSERT_FALSE(tokenizer.ok()) << field;
    EXPECT_EQ(tokenizer.status().field(), field) << tokenizer.status().to_string();
    EXPECT_FALSE(tokenizer.status().message().empty());
  };
  const auto with = [](const char* pointer, const json& value) {
    json model = unigram_json();
    model[json::json_pointer(pointer)] = value;
    return make(model);
  };
  expect_field(Tokenizer::from_tokenizer_json(MemorySource()), "tokenizer.json");
  expect_field(Tokenizer::from_tokenizer_json(tokenizer_source("{\"model\": ")), "tokenizer.json");
  expect_field(Tokenizer::from_tokenizer_json(tokenizer_source("{\xff}")), "tokenizer.json");
  expect_field(make(unigram_json(), "{"), "tokenizer_config.json");
  expect_field(make(unigram_json(), R"({"eos_token": 3})"), "tokenizer_config.json: eos_token");
  expect_field(with("/model/type", "WordPiece"), "tokenizer.json: model.type");
  expect_field(with("/model/vocab/3", "a"), "tokenizer.json: model.vocab[3]");
  expect_field(with("/model/unk_id", 99), "tokenizer.json: model.unk_id");
  expect_field(with("/added_tokens/0/id", 1u << 30), "tokenizer.json: added_tokens[0].id");
  expect_field(with("/added_tokens/1/content", "other"), "tokenizer.json: added_tokens");
  expect_field(with("/pre_tokenizer/type", "Nonesuch"), "tokenizer.json: pre_tokenizer");
  expect_field(with("/post_processor", json::parse(R"({"type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}], "pair": [],
                    "special_tokens": {}})")),
               "tokenizer.json: post_processor.special_tokens");
  expect_field(with("/decoder/type", "WordPiece"), "tokenizer.json: decoder");
}

// A file could make a text of some kilobytes one of gigabytes.
TEST(TokenizerJson, ANormaliserLengthensATextBoundedly) {
  const auto with = [](const json& normalizer) {
    json model = unigram_json();
    model["normalizer"] = normalizer;
    return make(model).status();
  };
  const auto replace = [](const char* kind, const char* pattern, const std::string& content) {
    json step = json::object({{"type", "Replace"}, {"content", content}});
    step["pattern"][kind] = pattern;
    return step;
  };
  const auto prepend = [](const std::string& text) {
    return json::object({{"type", "Prepend"}, {"prepend", text}});
  };
  const auto sequence = [](const json& one, const json& other) {
    return json::object({{"type", "Sequence"}, {"normalizers", json::array({one, other})}});
  };
  const auto longer = [&](std::size_t times) { return replace("String", "a", std::string(times, 'a')); };
  EXPECT_TRUE(with(sequence(prepend("▁"), replace("String", " ", "▁"))).ok());
  EXPECT_TRUE(with(longer(64)).ok());
  json untyped = longer(65);
  untyped.erase("type");
  for (const json& one :
       {longer(65), untyped, sequence(longer(9), longer(8)), prepend(std::string(65, 'b')),
        replace("String", "", std::string(64, 'b')), replace("Regex", "x*", std::string(64, 'b'))}) {
    EXPECT_EQ(with(one).field(), "tokenizer.json: normalizer") << one << with(one).to_string();
  }
}

}  // namespace
}  // namespace loci
