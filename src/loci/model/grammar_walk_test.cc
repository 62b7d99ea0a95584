// SPDX-License-Identifier: Apache-2.0
// Random walks over masks: every sampled reply is a text of the grammar. Also compares masks with brute force
// over every token of a vocabulary.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/model/grammar.h"
#include "loci/model/schema_testing.h"
#include "loci/model/text_testing.h"

namespace loci {
namespace {

struct NamedTokenizer {
  std::string name;
  Tokenizer tokenizer;
};

// The small one; GPT-2's; the default model's and llama.cpp's collection where they are on this machine.
std::vector<NamedTokenizer> vocabularies() {
  std::vector<NamedTokenizer> out;
  out.push_back({"small", std::move(tokenizer_from(byte_level_writer({"<|tool|>"}, {"<t>"}, 600))).value()});
  const auto add = [&](const std::string& name, const std::string& path) {
    if (!std::filesystem::exists(path)) return;
    const GgufFile file = std::move(GgufFile::open(path)).value();
    out.push_back({name, std::move(Tokenizer::from_gguf(file)).value()});
  };
  add("gpt-2", environment("LOCI_BINARY_DIR") + "/testdata/ggml-vocab-gpt-2.gguf");
  const std::string folder = environment("LOCI_VOCABULARIES");
  if (folder.empty()) return out;
  for (const char* name : {"llama-spm", "llama-bpe", "qwen2", "phi-3", "gemma-4"})
    add(name, folder + "/ggml-vocab-" + name + ".gguf");
  return out;
}

// Where a walk has become long it takes what closes strings, objects and lists.
int closeness(const std::string& bytes) {
  const std::string order = "\"}]:0123456789";
  const std::size_t at = bytes.size() == 1 ? order.find(bytes) : order.npos;
  if (at != order.npos) return static_cast<int>(at);
  return bytes == "," ? 101 : bytes.find_first_of(" \n\t\r.eE+-\\") == bytes.npos ? 100 : 102;
}

// A text that random choices among the allowed tokens give, which ends where it may.
std::optional<std::string> walk(const Tokenizer& tokenizer, const Grammar& grammar, Random& random,
                                std::size_t free_steps) {
  GrammarMatcher matcher = grammar.matcher().value();
  std::vector<std::uint32_t> mask(grammar.mask_words());
  std::string text;
  for (std::size_t step = 0; step < 3000; ++step) {
    const Result<MatchState> state = matcher.mask(mask);
    EXPECT_TRUE(state.ok()) << state.status().to_string() << " after " << text;
    if (!state.ok()) return std::nullopt;
    const bool may_end = *state == MatchState::kMayEnd && (step > free_steps || random.below(4) == 0);
    if (*state == MatchState::kComplete || may_end) return text;
    std::vector<TokenId> allowed;
    for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if (mask_allows(mask, TokenId(id))) allowed.emplace_back(id);
    EXPECT_FALSE(allowed.empty()) << "after " << text;
    if (allowed.empty()) return std::nullopt;
    TokenId token = allowed[random.below(allowed.size())];
    if (step > free_steps) {
      token = *std::min_element(allowed.begin(), allowed.end(), [&](TokenId a, TokenId b) {
        return closeness(tokenizer.token_bytes(a)) < closeness(tokenizer.token_bytes(b));
      });
    }
    EXPECT_FALSE(tokenizer.is_control(token));
    const Result<MatchState> accepted = matcher.accept(token);
    EXPECT_TRUE(accepted.ok()) << accepted.status().to_string();
    if (!accepted.ok()) return std::nullopt;
    text += tokenizer.token_bytes(token);
  }
  ADD_FAILURE() << "no end in sight: " << text.substr(0, 400);
  return std::nullopt;
}

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"zeta":{"type":"string","maxLength":12},"alpha":{"type":"integer"},)"
    R"("list":{"type":"array","items":{"type":"number"},"minItems":1,"maxItems":4}},)"
    R"("required":["zeta","alpha"],"additionalProperties":false})",
    R"({"type":"object","properties":{"kind":{"enum":["a","b","été",3,null]},"flag":{"const":true}},)"
    R"("required":["kind","flag"]})",
    R"({"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer","minimum":-5,"maximum":17},)"
    R"("next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"],)"
    R"("additionalProperties":false}},"$ref":"#/$defs/node"})",
    R"({"type":"array","items":{"type":["string","boolean"],"minLength":2,"maxLength":5},"maxItems":6})",
    R"({"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"boolean"}}})",
    R"({"type":"object","properties":{"code":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{3,5}$"}},"required":["code"]})",
    R"({"anyOf":[{"type":"number"},{"type":"string"},{"type":"object","properties":{"x":{"type":"null"}},)"
    R"("required":["x"],"additionalProperties":false}]})",
    R"({})",
};

TEST(GrammarWalk, WhatIsSampledSatisfiesTheSchema) {
  for (const NamedTokenizer& one : vocabularies()) {
    SCOPED_TRACE(one.name);
    GrammarCompiler compiler(one.tokenizer);
    Random random(7);
    for (const char* schema : kSchemas) {
      SCOPED_TRACE(schema);
      const auto grammar = compiler.compile({GrammarKind::kJsonSchema, schema});
      ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
      const auto parsed = nlohmann::ordered_json::parse(schema);
      for (int i = 0; i < 6; ++i) {
        const auto text = walk(one.tokenizer, **grammar, random, random.below(30));
        ASSERT_TRUE(text.has_value());
        const auto value = nlohmann::ordered_json::parse(*text, nullptr, false);
        ASSERT_FALSE(value.is_discarded()) << *text;
        EXPECT_TRUE(SchemaCheck(parsed).valid(value)) << *text;
      }
    }
    const auto object = compiler.compile({GrammarKind::kJsonObject, ""}).value();
    for (int i = 0; i < 5; ++i) {
      const std::string text = walk(one.tokenizer, *object, random, random.below(40)).value_or("");
      EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
    }
  }
}

// --- brute force ---

enum class Fit { kNo, kPrefix, kWhole };
using Oracle = std::function<Fit(const std::string&)>;

// Every token against the oracle, at each step of random walks. `may_refuse`: texts that the grammar need not
// allow though the oracle does.
void compare(const Tokenizer& tokenizer, const Grammar& grammar, const Oracle& oracle,
             const std::function<bool(const std::string&, const std::string&)>& may_refuse,
             std::uint64_t walks, int steps) {
  Random random(3);
  std::vector<std::uint32_t> mask(grammar.mask_words());
  for (std::uint64_t i = 0; i < test_rounds(walks); ++i) {
    GrammarMatcher matcher = grammar.matcher().value();
    std::string text;
    for (int step = 0; step < steps; ++step) {
      const MatchState state = matcher.mask(mask).value();
      std::vector<TokenId> allowed;
      for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
        const TokenId token(id);
        const std::string bytes = tokenizer.token_bytes(token);
        const bool text_token = !tokenizer.is_control(token) && !bytes.empty();
        const bool fits = text_token && oracle(text + bytes) != Fit::kNo;
        if (mask_allows(mask, token)) {
          allowed.push_back(token);
          ASSERT_TRUE(fits) << "'" << text << "' then '" << bytes << "' must not be allowed";
        } else {
          // The converter's name for a row of the embedding that is no token.
          const bool unused = bytes == "[PAD" + std::to_string(id) + "]";
          ASSERT_TRUE(!fits || unused || may_refuse(text, bytes))
              << "'" << text << "' then '" << bytes << "' must be allowed";
        }
      }
      const bool may_end = state == MatchState::kMayEnd || state == MatchState::kComplete;
      ASSERT_EQ(may_end, oracle(text) == Fit::kWhole) << text;
      if (allowed.empty()) {
        ASSERT_EQ(state, MatchState::kComplete) << text;
        break;
      }
      const TokenId token = allowed[random.below(allowed.size())];
      ASSERT_TRUE(matcher.accept(token).ok());
      text += tokenizer.token_bytes(token);
    }
  }
}

Oracle one_of(std::vector<std::string> texts) {
  return [texts = std::move(texts)](const std::string& text) {
    Fit fit = Fit::kNo;
    for (const std::string& one : texts) {
      if (one == text) return Fit::kWhole;
      if (one.starts_with(text)) fit = Fit::kPrefix;
    }
    return fit;
  };
}

// A plain reader of one JSON object that may break off anywhere.
class JsonPrefix {
 public:
  static Fit fit(const std::string& text) {
    JsonPrefix reader(text);
    const Fit fit = reader.object();
    if (fit == Fit::kWhole && reader.at_ < text.size()) return Fit::kNo;
    return fit;
  }

 private:
  explicit JsonPrefix(const std::string& text) : text_(text) {}
  bool ended() const { return at_ >= text_.size(); }
  bool take(char c) { return !ended() && text_[at_] == c ? (++at_, true) : false; }
  // At most 20 blanks between two tokens.
  bool blanks() {
    const std::size_t begin = at_;
    while (!ended() && std::string(" \t\r\n").find(text_[at_]) != std::string::npos) ++at_;
    return at_ - begin <= 20;
  }
  Fit value() {
    if (ended()) return Fit::kPrefix;
    switch (text_[at_]) {
      case '{': return object();
      case '[': return list();
      case '"': return string();
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }
  Fit word(std::string_view wanted) {
    for (const char c : wanted) {
      if (ended()) return Fit::kPrefix;
      if (!take(c)) return Fit::kNo;
    }
    return Fit::kWhole;
  }
  Fit digits() {
    if (ended()) return Fit::kPrefix;
    const std::size_t begin = at_;
    while (!ended() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin ? Fit::kWhole : Fit::kNo;
  }
  Fit number() {
    take('-');
    if (!take('0')) {
      if (const Fit fit = digits(); fit != Fit::kWhole) return fit;
    }
    if (take('.')) {
      if (const Fit fit = digits(); fit != Fit::kWhole) return fit;
    }
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (const Fit fit = digits(); fit != Fit::kWhole) return fit;
    }
    return Fit::kWhole;
  }
  Fit string() {
    if (!take('"')) return ended() ? Fit::kPrefix : Fit::kNo;
    const std::size_t begin = at_;
    while (!ended() && text_[at_] != '"') {
      const auto c = static_cast<unsigned char>(text_[at_++]);
      if (c < 0x20) return Fit::kNo;
      if (c != '\\') continue;
      if (ended()) return Fit::kPrefix;
      const char kind = text_[at_++];
      if (kind != 'u' && std::string("\"\\/bfnrt").find(kind) == std::string::npos) return Fit::kNo;
      for (int i = 0; kind == 'u' && i < 4; ++i) {
        if (ended()) return Fit::kPrefix;
        if (!std::isxdigit(static_cast<unsigned char>(text_[at_++]))) return Fit::kNo;
      }
    }
    if (!utf8_so_far(text_.substr(begin, at_ - begin), ended())) return Fit::kNo;
    return take('"') ? Fit::kWhole : Fit::kPrefix;
  }
  // Whole characters; the last one may be broken off.
  static bool utf8_so_far(const std::string& text, bool may_break_off) {
    for (std::size_t i = 0; i < text.size();) {
      const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
      const unsigned first = byte(i++);
      if (first < 0x80) continue;
      if (first < 0xc2 || first > 0xf4) return false;
      const int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
      unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
      unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
      for (int k = 0; k < more; ++k) {
        if (i == text.size()) return may_break_off;
        if (byte(i) < low || byte(i) > high) return false;
        ++i;
        low = 0x80;
        high = 0xbf;
      }
    }
    return true;
  }
  Fit list() {
    take('[');
    if (!blanks()) return Fit::kNo;
    if (take(']')) return Fit::kWhole;
    while (true) {
      if (const Fit fit = value(); fit != Fit::kWhole) return fit;
      if (!blanks()) return Fit::kNo;
      if (take(']')) return Fit::kWhole;
      if (!take(',')) return ended() ? Fit::kPrefix : Fit::kNo;
      if (!blanks()) return Fit::kNo;
    }
  }
  Fit object() {
    if (!take('{')) return ended() ? Fit::kPrefix : Fit::kNo;
    if (!blanks()) return Fit::kNo;
    if (take('}')) return Fit::kWhole;
    while (true) {
      if (const Fit fit = string(); fit != Fit::kWhole) return fit;
      if (!blanks()) return Fit::kNo;
      if (!take(':')) return ended() ? Fit::kPrefix : Fit::kNo;
      if (!blanks()) return Fit::kNo;
      if (const Fit fit = value(); fit != Fit::kWhole) return fit;
      if (!blanks()) return Fit::kNo;
      if (take('}')) return Fit::kWhole;
      if (!take(',')) return ended() ? Fit::kPrefix : Fit::kNo;
      if (!blanks()) return Fit::kNo;
    }
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

TEST(GrammarMask, EqualsBruteForceOverEveryToken) {
  const auto exact = [](const std::string&, const std::string&) { return false; };
  // (ab|a)(bc|c){0,2}x?
  std::vector<std::string> language;
  for (const std::string first : {"ab", "a"}) {
    for (const std::string second : {"", "bc", "c"}) {
      for (const std::string third : {"", "bc", "c"}) {
        for (const std::string last : {"", "x"}) language.push_back(first + second + third + last);
      }
    }
  }
  const std::vector<std::string> choices = {"Paris", "London", "Par", "Zürich", "New York", "東京", " the"};
  for (const NamedTokenizer& one : vocabularies()) {
    SCOPED_TRACE(one.name);
    GrammarCompiler compiler(one.tokenizer);
    const auto compiled = [&](GrammarKind kind, const std::string& text) {
      return compiler.compile({kind, text}).value();
    };
    compare(one.tokenizer, *compiled(GrammarKind::kChoice, nlohmann::json(choices).dump()), one_of(choices),
            exact, 8, 9);
    compare(one.tokenizer, *compiled(GrammarKind::kRegex, "(ab|a)(bc|c){0,2}x?"), one_of(language), exact, 8,
            9);
    compare(
        one.tokenizer,
        *compiled(GrammarKind::kLark, "start: FIRST\nFIRST: (\"ab\" | \"a\") (\"bc\" | \"c\"){0,2} \"x\"?"),
        one_of(language), exact, 4, 9);
    // Escapes that need not be (\u0041, \/) and the character 0x7f are not offered.
    const auto rare = [](const std::string& text, const std::string& bytes) {
      const std::string tail = text.substr(text.size() - std::min<std::size_t>(text.size(), 5));
      return (tail + bytes).find_first_of("\\\x7f") != std::string::npos;
    };
    compare(one.tokenizer, *compiled(GrammarKind::kJsonObject, ""), JsonPrefix::fit, rare, 3, 25);
  }
}

}  // namespace
}  // namespace loci
