// SPDX-License-Identifier: Apache-2.0
#include "loci/model/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "loci/base/random.h"
#include "loci/model/text_testing.h"
#include "loci/model/utf8.h"
#include "loci/model/utf8_testing.h"

namespace loci {
namespace {

Result<Tokenizer> open_tokenizer(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  return Tokenizer::from_gguf(file);
}

const Tokenizer& default_tokenizer() {
  static const Result<Tokenizer> tokenizer = open_tokenizer(default_model_path());
  LOCI_CHECK(tokenizer.ok(), kDefaultModelHint);
  return tokenizer.value();
}

// The known-good ids of llama.cpp's vocabulary tests.
void check_conformance(const Tokenizer& tokenizer, const std::string& rows_name) {
  std::istringstream rows(read_file(source_file("tests/data/text/" + rows_name)));
  std::string line;
  int count = 0;
  while (std::getline(rows, line)) {
    const auto row = nlohmann::json::parse(line);
    const auto text = row["text"].get<std::string>();
    EXPECT_EQ(encode(tokenizer, text), row["ids"].get<std::vector<std::uint32_t>>()) << text;
    const auto tokens = tokenizer.encode(text, ControlText::kAsText);
    EXPECT_EQ(tokenizer.decode(*tokens, ControlText::kAsText).value(), text);
    ++count;
  }
  EXPECT_EQ(count, 47);
}

TEST(Tokenizer, ConformsOnGpt2) {
  const auto tokenizer = open_tokenizer(environment("LOCI_BINARY_DIR") + "/testdata/ggml-vocab-gpt-2.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(tokenizer->vocabulary_size(), 50257u);
  EXPECT_EQ(numbers(tokenizer->end_tokens()), std::vector<std::uint32_t>{50256});
  EXPECT_EQ(tokenizer->bos(), TokenId(50256));
  EXPECT_FALSE(tokenizer->add_bos());
  check_conformance(*tokenizer, "gpt-2.jsonl");
}

// LOCI_VOCABULARIES names the folder models/ of llama.cpp's sources (tests/golden/fetch_vocabularies.sh
// fetches it): every vocabulary there that has test cases is checked.
TEST(Tokenizer, ConformsOnLlamaCppVocabularies) {
  const std::string folder = environment("LOCI_VOCABULARIES");
  if (folder.empty())
    GTEST_SKIP() << "left to another part (published vocabularies): LOCI_VOCABULARIES is not set";
  check_conformance(open_tokenizer(folder + "/ggml-vocab-qwen2.gguf").value(), "qwen2.jsonl");
  const std::string separator = "\n__ggml_vocab_test__\n";
  for (const char* name :
       {"command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm",
        "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"}) {
    const std::string path = folder + "/ggml-vocab-" + name + ".gguf";
    const auto tokenizer = open_tokenizer(path);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
    const std::string texts = read_file(path + ".inp");
    std::istringstream wanted(read_file(path + ".out"));
    std::string line;
    std::size_t at = 0;
    for (std::size_t end; (end = texts.find(separator, at)) != std::string::npos;
         at = end + separator.size()) {
      ASSERT_TRUE(std::getline(wanted, line));
      std::istringstream ids(line);
      const std::vector<std::uint32_t> want{std::istream_iterator<std::uint32_t>(ids), {}};
      EXPECT_EQ(encode(*tokenizer, texts.substr(at, end - at)), want) << name << texts.substr(at, end - at);
    }
  }
  // Those without cases are at least read, and the unigram one compared with what llama.cpp says today.
  for (const char* name : {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"}) {
    const auto tokenizer = open_tokenizer(folder + "/ggml-vocab-" + name + ".gguf");
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
    if (std::string_view(name) != "nomic-bert-moe") continue;
    std::istringstream rows(read_file(source_file("tests/data/text/nomic-bert-moe.jsonl")));
    for (std::string row_text; std::getline(rows, row_text);) {
      const auto row = nlohmann::json::parse(row_text);
      EXPECT_EQ(encode(*tokenizer, row["text"].get<std::string>()),
                row["ids"].get<std::vector<std::uint32_t>>())
          << row_text;
    }
  }
  // WordPiece: of encoders alone.
  const Status encoder = open_tokenizer(folder + "/ggml-vocab-bert-bge.gguf").status();
  EXPECT_EQ(encoder.field(), "tokenizer.ggml.model");
  EXPECT_NE(encoder.message().find("generate no text"), std::string::npos) << encoder.message();
}

TEST(Tokenizer, MatchesHuggingFaceOnTheDefaultModel) {
  const Tokenizer& tokenizer = default_tokenizer();
  EXPECT_EQ(tokenizer.vocabulary_size(), 49152u);
  EXPECT_EQ(tokenizer.control_texts().size(), 17u);
  EXPECT_FALSE(tokenizer.add_bos());
  EXPECT_EQ(numbers(tokenizer.end_tokens()), (std::vector<std::uint32_t>{2, 0}));
  const auto rows = read_golden("smollm2_tokens.json");
  EXPECT_GT(rows.size(), 90u);
  for (const auto& row : rows) {
    const auto text = row["text"].get<std::string>();
    const auto tokens = tokenizer.encode(text, ControlText::kAsControl);
    ASSERT_TRUE(tokens.ok());
    EXPECT_EQ(numbers(*tokens), row["ids"].get<std::vector<std::uint32_t>>()) << text;
    EXPECT_EQ(tokenizer.decode(*tokens, ControlText::kAsControl).value(), text);
    const auto plain = tokenizer.encode(text, ControlText::kAsText);
    for (const TokenId token : *plain) EXPECT_FALSE(tokenizer.is_control(token)) << text;
    EXPECT_EQ(tokenizer.decode(*plain, ControlText::kAsText).value(), text);
  }
}

std::string random_text(Random& random, const std::vector<std::string>& control) {
  std::string text;
  for (std::uint64_t left = random.below(12); left > 0; --left) {
    switch (random.below(6)) {
      case 0: text += control[random.below(control.size())]; break;
      case 1: text += std::string(random.below(5), ' '); break;
      case 2: text += std::string(random.below(3), '\n') + "\t"; break;
      case 3: text += static_cast<char>(random.below(128)); break;
      case 4: {
        const char32_t c = static_cast<char32_t>(random.below(0x110000));
        append_character(c >= 0xd800 && c < 0xe000 ? U'x' : c, text);
        break;
      }
      default: text += "word's 1234 Ab"; break;
    }
  }
  return text;
}

// SmolLM2 has no token for some bytes of rare characters (0x1d, 0xf1, ...); like Hugging Face's, its
// tokenizer leaves them out.
std::array<bool, 256> bytes_with_token(const Tokenizer& tokenizer) {
  std::array<bool, 256> has_byte{};
  for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string bytes = tokenizer.token_bytes(TokenId(id));
    if (bytes.size() == 1) has_byte[static_cast<unsigned char>(bytes[0])] = true;
  }
  return has_byte;
}

std::string without_missing_bytes(const std::array<bool, 256>& has_byte, std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, first_character(text).bytes);
    if (std::all_of(character.begin(), character.end(),
                    [&](char byte) { return has_byte[static_cast<unsigned char>(byte)]; }))
      kept += character;
    text.remove_prefix(character.size());
  }
  return kept;
}

void check_round_trips(const Tokenizer& tokenizer, int times) {
  const std::array<bool, 256> has_byte = bytes_with_token(tokenizer);
  Random random(1);
  for (int i = 0; i < times; ++i) {
    const std::string text = without_missing_bytes(has_byte, random_text(random, tokenizer.control_texts()));
    const auto plain = tokenizer.encode(text, ControlText::kAsText);
    ASSERT_TRUE(plain.ok());
    for (const TokenId token : *plain) ASSERT_FALSE(tokenizer.is_control(token)) << text;
    ASSERT_EQ(tokenizer.decode(*plain, ControlText::kAsText).value(), text);
    const auto control = tokenizer.encode(text, ControlText::kAsControl);
    ASSERT_EQ(tokenizer.decode(*control, ControlText::kAsControl).value(), text);
  }
}

TEST(Tokenizer, EncodingGoesRound) {
  check_round_trips(default_tokenizer(), 1000);
  // Every byte has a token here.
  check_round_trips(tokenizer_from(byte_level_writer({"<tool>", "word"}, {"<think>"}, 3000)).value(), 3000);
}

TEST(StreamDecoder, EqualsDecodingAtOnce) {
  const Tokenizer& tokenizer = default_tokenizer();
  std::vector<TokenId> byte_tokens;  // tokens of one or two bytes, most of them no whole character
  for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    if (!tokenizer.is_control(TokenId(id)) && tokenizer.token_bytes(TokenId(id)).size() <= 2)
      byte_tokens.emplace_back(id);
  ASSERT_GT(byte_tokens.size(), 200u);
  Random random(2);
  std::size_t replaced = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<TokenId> tokens;
    for (std::uint64_t left = random.below(24); left > 0; --left) {
      const bool is_any = random.below(4) == 0;  // control tokens among them
      tokens.push_back(is_any ? TokenId(static_cast<std::uint32_t>(random.below(tokenizer.vocabulary_size())))
                              : byte_tokens[random.below(byte_tokens.size())]);
    }
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const TokenId token : tokens) {
      const std::string piece = decoder.push(token);
      std::string checked;
      append_utf8_final(piece, checked);
      ASSERT_EQ(checked, piece) << "a piece is whole UTF-8";
      text += piece;
    }
    text += decoder.finish();
    ASSERT_EQ(text, tokenizer.decode(tokens, ControlText::kAsText).value());
    replaced += text.find("\xef\xbf\xbd") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(replaced, 100u) << "the sequences held bytes that are no UTF-8";
}

TEST(Tokenizer, UserDefinedTokensAreAlwaysMatchedControlTokensNever) {
  const auto tokenizer =
      tokenizer_from(byte_level_writer({"<tool>", "plainword", "</s>"}, {"<think>", "<tool", "[PAD264]"}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const TokenId think = tokenizer->find("<think>").value();
  const TokenId part = tokenizer->find("<tool").value();
  const TokenId tool = tokenizer->find("<tool>").value();
  EXPECT_FALSE(tokenizer->is_control(think));
  EXPECT_TRUE(tokenizer->is_control(tool));
  for (const ControlText control : {ControlText::kAsText, ControlText::kAsControl})
    EXPECT_EQ(encode(*tokenizer, "<think>", control), std::vector<std::uint32_t>{think.value});
  EXPECT_EQ(encode(*tokenizer, "<tool>", ControlText::kAsControl), std::vector<std::uint32_t>{tool.value});
  const auto plain = encode(*tokenizer, "<tool>");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0], part.value);
  // A control token of letters alone is a word like any other in plain text.
  for (const std::uint32_t id : encode(*tokenizer, "plainword plainword </s>"))
    EXPECT_FALSE(tokenizer->is_control(TokenId(id)));
  EXPECT_EQ(tokenizer->control_texts().front().size(), 13u) << "longest first: <|endoftext|>";
}

using TypedTokens = std::vector<std::pair<std::string, std::int32_t>>;

GgufWriter sentence_piece_writer(const TypedTokens& more = {}) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  std::vector<float> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
    scores.push_back(0);
  }
  // "ab" is better than "bc": "abc" is ab + c.
  const std::vector<std::pair<const char*, float>> pieces = {{"▁a", -1},  {"ab", -2}, {"bc", -3},
                                                             {"▁ab", -4}, {"▁", -5},  {"a", -6},
                                                             {"b", -7},   {"c", -8},  {"▁▁", -9}};
  for (const auto& [text, score] : pieces) {
    tokens.emplace_back(text);
    types.push_back(1);
    scores.push_back(score);
  }
  for (const auto& [text, type] : more) {
    tokens.push_back(text);
    types.push_back(type);
    scores.push_back(-static_cast<float>(scores.size()));
  }
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("llama"));
  writer.add_strings("tokenizer.ggml.tokens", std::move(tokens));
  writer.add_ints("tokenizer.ggml.token_type", std::move(types));
  writer.add("tokenizer.ggml.scores", GgufArray{std::move(scores)});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  return writer;
}

TEST(Tokenizer, MergesSentencePiecesByScore) {
  const auto tokenizer = tokenizer_from(sentence_piece_writer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_TRUE(tokenizer->add_bos());
  const auto id = [&](std::string_view text) { return tokenizer->find(text).value().value; };
  EXPECT_EQ(encode(*tokenizer, "abc"), (std::vector<std::uint32_t>{id("▁a"), id("bc")}));
  EXPECT_EQ(encode(*tokenizer, "ab"), (std::vector<std::uint32_t>{id("▁ab")}));
  EXPECT_EQ(encode(*tokenizer, "cab"), (std::vector<std::uint32_t>{id("▁"), id("c"), id("ab")}));
  EXPECT_EQ(encode(*tokenizer, "\xc3\xa9"),
            (std::vector<std::uint32_t>{id("▁"), id("<0xC3>"), id("<0xA9>")}));
  // Each piece of text between control tokens has its space.
  EXPECT_EQ(encode(*tokenizer, "<s>a</s>ab", ControlText::kAsControl),
            (std::vector<std::uint32_t>{1, id("▁a"), 2, id("▁ab")}));
  for (const char* text : {"", " ", "a", " a", "  a  b ", "<s>", "\xf0\x9f\x98\x80 c", "<0x41>", "\n\t"}) {
    const auto tokens = tokenizer->encode(text, ControlText::kAsText);
    EXPECT_EQ(tokenizer->decode(*tokens, ControlText::kAsText).value(), text);
    for (const TokenId token : *tokens) EXPECT_FALSE(tokenizer->is_control(token));
  }
  EXPECT_EQ(tokenizer->token_bytes(TokenId(id("<0x0A>"))), "\n");
  EXPECT_EQ(tokenizer->token_bytes(TokenId(id("▁ab"))), " ab");
}

// GGUF says nothing about blanks beside special tokens: the model's name does.
TEST(Tokenizer, BlanksAfterPhi3sSpecialTokensBelongToThem) {
  GgufWriter writer = sentence_piece_writer({{"<|user|>", 3}, {"<think>", 4}, {"<|endoftext|>", 3}});
  const auto check = [&](bool takes) {
    const auto tokenizer = tokenizer_from(writer);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const auto id = [&](std::string_view text) { return tokenizer->find(text).value().value; };
    const auto control = [&](std::string_view text) {
      return encode(*tokenizer, text, ControlText::kAsControl);
    };
    using Ids = std::vector<std::uint32_t>;
    EXPECT_EQ(control("<|user|> a"),
              takes ? (Ids{id("<|user|>"), id("▁a")}) : (Ids{id("<|user|>"), id("▁"), id("▁a")}));
    EXPECT_EQ(control("</s>\n ab").size(), takes ? 2u : 4u);
    EXPECT_EQ(encode(*tokenizer, "<think>  ab"),
              takes ? (Ids{id("<think>"), id("▁ab")}) : (Ids{id("<think>"), id("▁▁"), id("▁ab")}));
    // Not these, as in Hugging Face's files.
    EXPECT_EQ(control("<s> a"), (Ids{1, id("▁"), id("▁a")}));
    EXPECT_EQ(control("<|endoftext|> a"), (Ids{id("<|endoftext|>"), id("▁"), id("▁a")}));
  };
  check(false);
  writer.add("general.name", std::string("Phi-3 Mini 4K"));
  check(true);
  writer.replace("general.name", std::string("Llama"));
  check(false);
}

TEST(Tokenizer, TokensOfTurnsControlWhateverTheirType) {
  const auto tokenizer = tokenizer_from(byte_level_writer(
      {"<custom>"}, {"<|eot_id|>", "<start_of_turn>", "<｜end▁of▁sentence｜>", "[EOT]", "<think>"}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const std::vector<TokenId>& ends = tokenizer->end_tokens();
  for (const char* text : {"<|eot_id|>", "<｜end▁of▁sentence｜>", "[EOT]"}) {
    const TokenId token = tokenizer->find(text).value();
    EXPECT_TRUE(tokenizer->is_control(token)) << text;
    EXPECT_NE(std::find(ends.begin(), ends.end(), token), ends.end()) << text;
    for (const std::uint32_t id : encode(*tokenizer, text)) EXPECT_FALSE(tokenizer->is_control(TokenId(id)));
  }
  EXPECT_TRUE(tokenizer->is_control(tokenizer->find("<start_of_turn>").value()));
  EXPECT_FALSE(tokenizer->is_control(tokenizer->find("<think>").value()));
  // In Gemma's vocabularies it is a tag of HTML.
  const auto gemma = tokenizer_from(byte_level_writer({"<eos>"}, {"</s>"})).value();
  EXPECT_FALSE(gemma.is_control(gemma.find("</s>").value()));
  EXPECT_TRUE(std::ranges::count(gemma.end_tokens(), gemma.find("<eos>").value()) == 1);
}

TEST(Tokenizer, SentencePieceHasItsUsualSpecialTokens) {
  GgufWriter writer = sentence_piece_writer();
  for (const char* key : {"bos", "eos", "unknown"})
    writer.remove(fmt::format("tokenizer.ggml.{}_token_id", key));
  const auto tokenizer = tokenizer_from(writer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(tokenizer->bos(), TokenId(1));
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->unknown(), TokenId(0));
  EXPECT_EQ(numbers(tokenizer->end_tokens()), std::vector<std::uint32_t>{2});
  // "None", by the number that converters write for it.
  writer.add("tokenizer.ggml.bos_token_id", UINT32_MAX);
  EXPECT_FALSE(tokenizer_from(writer)->bos().has_value());
}

// Both cost the square of a token's length, in memory and in time.
TEST(Tokenizer, LongTokensHaveALimit) {
  const Status refused = tokenizer_from(byte_level_writer({std::string(1001, '<')}, {})).status();
  EXPECT_TRUE(refused.field().starts_with("tokenizer.ggml.tokens[")) << refused.field();
  EXPECT_EQ(refused.message(), "expected a control token of at most 1000 bytes, found 1001");
  EXPECT_TRUE(tokenizer_from(byte_level_writer({std::string(1000, '<')}, {})).ok());
  const auto refusal = [](std::size_t bytes) {
    return tokenizer_from(byte_level_writer({}, {std::string(bytes, 'x')})).status().message();
  };
  EXPECT_EQ(refusal(4096), "");
  EXPECT_EQ(refusal(4097), "expected a token of at most 4096 bytes, found 4097");
  TypedTokens doubled;
  for (std::size_t size = 1; size <= 1024; size *= 2) doubled.emplace_back(std::string(size, 'x'), 1);
  GgufWriter writer = sentence_piece_writer(doubled);
  writer.add("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = tokenizer_from(writer).value();
  const std::uint32_t half = tokenizer.find(std::string(512, 'x')).value().value;
  EXPECT_EQ(encode(tokenizer, std::string(1024, 'x')), (std::vector<std::uint32_t>{half, half}));
}

GgufWriter unigram_writer(bool remove_extra_spaces) {
  std::vector<std::string> tokens = {"<pad>", "</s>", "<unk>"};
  std::vector<std::int32_t> types = {3, 3, 2};
  std::vector<float> scores = {0, 0, 0};
  const std::pair<const char*, float> pieces[] = {
      {"▁", -3}, {"a", -2}, {"b", -2}, {"▁ab", -4}, {"ab", -3.5f}};
  for (const auto& [text, score] : pieces) {
    tokens.emplace_back(text);
    types.push_back(1);
    scores.push_back(score);
  }
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", std::string("t5"));
  writer.add_strings("tokenizer.ggml.tokens", std::move(tokens));
  writer.add_ints("tokenizer.ggml.token_type", std::move(types));
  writer.add("tokenizer.ggml.scores", GgufArray{std::move(scores)});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.remove_extra_whitespaces", remove_extra_spaces);
  return writer;
}

TEST(Tokenizer, TakesTheBestUnigrams) {
  const auto tokenizer = tokenizer_from(unigram_writer(true));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(encode(*tokenizer, "ab"), (std::vector<std::uint32_t>{6}));
  EXPECT_EQ(encode(*tokenizer, "  abab  a "), (std::vector<std::uint32_t>{6, 7, 3, 4}));
  EXPECT_EQ(encode(*tokenizer, "xx"), (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(encode(*tokenizer, "a</s>", ControlText::kAsControl), (std::vector<std::uint32_t>{3, 4, 1}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab a", ControlText::kAsText).value(), ControlText::kAsText)
                .value(),
            "ab a");
  const auto keeping = tokenizer_from(unigram_writer(false)).value();
  EXPECT_EQ(encode(keeping, " a"), (std::vector<std::uint32_t>{3, 3, 4}));
  GgufWriter writer = unigram_writer(false);
  writer.add("tokenizer.ggml.precompiled_charsmap", GgufArray{std::vector<std::int8_t>{100, 0, 0, 0, 1}});
  EXPECT_EQ(tokenizer_from(writer).status().field(), "tokenizer.ggml.precompiled_charsmap");
}

// A trie with one entry, 'a', and what replaces it.
std::vector<std::int8_t> chars_map(std::size_t replacement_bytes) {
  std::vector<std::uint32_t> units(256, 0x80000000u);  // which have no label
  units[0] = 1 << 10;                                  // the root, whose children are at 1 ^ byte
  units[1 ^ 'a'] = 'a' | 1u << 8 | (1u ^ 'a' ^ 200) << 10;
  units[200] = 0;  // the leaf: where the replacement begins
  std::vector<std::int8_t> out(4 + 4 * units.size());
  const auto size = static_cast<std::uint32_t>(4 * units.size());
  std::memcpy(out.data(), &size, 4);
  std::memcpy(out.data() + 4, units.data(), size);
  out.insert(out.end(), replacement_bytes, 'b');
  out.push_back(0);
  return out;
}

// Else a file could make a text of some kilobytes one of gigabytes.
TEST(Tokenizer, AMapOfCharactersLengthensATextBoundedly) {
  const auto with = [](std::size_t bytes) {
    GgufWriter writer = unigram_writer(false);
    writer.add("tokenizer.ggml.precompiled_charsmap", GgufArray{chars_map(bytes)});
    return tokenizer_from(writer);
  };
  const auto longest = with(16);
  ASSERT_TRUE(longest.ok()) << longest.status().to_string();
  EXPECT_EQ(encode(*longest, "a").size(), 1 + 16u) << "the blank before it, and what replaces it";
  const Status refused = with(17).status();
  EXPECT_EQ(refused.field(), "tokenizer.ggml.precompiled_charsmap");
  EXPECT_EQ(refused.message(), "expected a replacement of at most 16 bytes for 1");
}

TEST(Tokenizer, RefusesInput) {
  const Tokenizer& tokenizer = default_tokenizer();
  EXPECT_EQ(tokenizer.encode("a\xff", ControlText::kAsText).status().code(), StatusCode::kInvalidArgument);
  const std::vector<TokenId> beyond = {TokenId(49152)};
  const Status refused = tokenizer.decode(beyond, ControlText::kAsText).status();
  EXPECT_EQ(refused.field(), "tokens");
  EXPECT_EQ(refused.message(), "expected a token below 49152, found 49152");
  EXPECT_EQ(tokenizer.token_bytes(TokenId(49152)), "");
  EXPECT_FALSE(tokenizer.is_control(TokenId(49152)));
}

TEST(Tokenizer, RefusesVocabulariesByNamingTheKey) {
  const auto refusal = [](std::string_view key, GgufValue value) {
    GgufWriter writer = byte_level_writer({}, {});
    writer.replace(fmt::format("tokenizer.ggml.{}", key), std::move(value));
    return tokenizer_from(writer).status();
  };
  const Status pre = refusal("pre", std::string("nonesuch"));
  EXPECT_EQ(pre.field(), "tokenizer.ggml.pre");
  EXPECT_NE(pre.message().find("nonesuch"), std::string::npos);
  EXPECT_NE(pre.message().find("smollm"), std::string::npos) << "the known names are listed";
  const Status model = refusal("model", std::string("bert"));
  EXPECT_EQ(model.field(), "tokenizer.ggml.model");
  EXPECT_NE(model.message().find("gpt2"), std::string::npos);
  EXPECT_EQ(refusal("merges", GgufArray{std::vector<std::string>{"x nonesuchtoken"}}).field(),
            "tokenizer.ggml.merges[0]");
  EXPECT_EQ(refusal("merges", GgufArray{std::vector<std::string>{"nospace"}}).field(),
            "tokenizer.ggml.merges[0]");
  EXPECT_EQ(refusal("token_type", GgufArray{std::vector<std::int32_t>{1}}).field(),
            "tokenizer.ggml.token_type");
  EXPECT_EQ(refusal("bos_token_id", std::uint32_t{1u << 30}).field(), "tokenizer.ggml.bos_token_id");
  EXPECT_EQ(refusal("tokens", GgufArray{std::vector<std::string>{}}).field(), "tokenizer.ggml.tokens");
}

// Each name that the refusal of an unknown one lists is a pre-tokenizer that works.
TEST(Tokenizer, EveryPreTokenizerGoesRound) {
  GgufWriter writer = byte_level_writer({}, {});
  writer.replace("tokenizer.ggml.pre", std::string("nonesuch"));
  const std::string refusal = tokenizer_from(writer).status().message();
  const std::string front = "expected one of ";
  std::istringstream names(refusal.substr(refusal.find(front) + front.size()));
  int count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ','); ++count) {
    writer.replace("tokenizer.ggml.pre", name);
    const auto tokenizer = tokenizer_from(writer);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
    for (const std::string_view text :
         {"Don't WE'LL 1234567\u00bd  x\r\n\n\t.,!? (a)[b] \u6f22\u5b57\u304b \u03a9\u044f", "   ", "\n"}) {
      const auto tokens = tokenizer->encode(text, ControlText::kAsText);
      EXPECT_EQ(tokenizer->decode(*tokens, ControlText::kAsText).value(), text) << name;
    }
  }
  EXPECT_GT(count, 80);
}

// Of this thread: how busy the machine is does not count.
double encoding_seconds(const Tokenizer& tokenizer, const std::string& text) {
  const auto worked = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double begin = worked();
  EXPECT_TRUE(tokenizer.encode(text, ControlText::kAsControl).ok());
  return worked() - begin;
}

// Patterns that look ahead to the end of a run from each of its characters.
TEST(Tokenizer, LongRunsTakeLinearTime) {
  GgufWriter writer = byte_level_writer({}, {});
  for (const auto& [name, run, after] : std::vector<std::array<std::string, 3>>{{"deepseek-llm", " ", "5"},
                                                                                {"superbpe", "1", ""},
                                                                                {"tiny_aya", "1", "a"},
                                                                                {"tiny_aya", "1", ""},
                                                                                {"afmoe", "1", ""}}) {
    writer.replace("tokenizer.ggml.pre", name);
    const Tokenizer tokenizer = tokenizer_from(writer).value();
    const auto text = [&](std::size_t size) {
      std::string whole;
      for (std::size_t i = 0; i < size; ++i) whole += run;
      return whole + after;
    };
    encoding_seconds(tokenizer, text(5'000));
    const double base = encoding_seconds(tokenizer, text(5'000));
    EXPECT_LT(encoding_seconds(tokenizer, text(80'000)), 16 * 6 * base + 0.25) << name << after;
  }
}

// A prompt of 100,000 tokens is encoded once per request: time must grow with length, not its square.
TEST(Tokenizer, LongTextsTakeLinearTime) {
  const auto seconds = [](const std::string& text) { return encoding_seconds(default_tokenizer(), text); };
  for (const std::string unit :
       {"The quick brown fox's 42 jumps. ", "a", " ", "\n", "<|im_end|>", "漢", "<|"}) {
    std::string small;
    while (small.size() < 40'000) small += unit;
    std::string large;
    for (int i = 0; i < 16; ++i) large += small;
    seconds(small);
    const double base = seconds(small);
    EXPECT_LT(seconds(large), 16 * 6 * base + 0.5) << unit;
  }
}

}  // namespace
}  // namespace loci
