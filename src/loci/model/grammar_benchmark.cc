// SPDX-License-Identifier: Apache-2.0
// What constrained output costs, for one vocabulary: grammar_benchmark [FILE.gguf]. Microseconds of processor
// time (so other programs do not count); for masks the median, the 99th percentile and the maximum, over
// random walks.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "loci/base/random.h"
#include "loci/model/grammar.h"
#include "loci/model/text_testing.h"

namespace loci {
namespace {

const std::pair<const char*, GrammarSource> kCases[] = {
    {"any object", {GrammarKind::kJsonObject, ""}},
    {"flat schema",
     {GrammarKind::kJsonSchema, R"({"type":"object","properties":{"name":{"type":"string"},"age":
      {"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","tags"],
      "additionalProperties":false})"}},
    {"recursive schema", {GrammarKind::kJsonSchema, R"({"$defs":{"n":{"type":"object","properties":{"v":
      {"type":"number"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},
      "$ref":"#/$defs/n"})"}},
    {"pattern", {GrammarKind::kRegex, "(https?://[a-z0-9.-]{1,40}/[^ ]{0,80} ?){1,9}"}},
    {"choice", {GrammarKind::kChoice, R"(["north","south","north-east","nowhere at all"])"}},
    {"lark",
     {GrammarKind::kLark,
      "start: call (\";\" call)*\ncall: NAME \"(\" [arg (\",\" arg)*] \")\"\n"
      "arg: NAME \"=\" (call | /[0-9]+/ | /\"[^\"]*\"/)\nNAME: /[a-z_]+/"}},
};

double processor_micros() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Times {
  std::vector<double> micros;
  double at(double share) {
    if (micros.empty()) return 0;
    std::sort(micros.begin(), micros.end());
    return micros[static_cast<std::size_t>(share * static_cast<double>(micros.size() - 1))];
  }
};

void walk(const Tokenizer& tokenizer, const Grammar& grammar, Random& random, Times& copies, Times& masks,
          Times& accepts) {
  const auto timed = [&](Times& times, const auto& job) {
    const double begin = processor_micros();
    auto result = job();
    times.micros.push_back(processor_micros() - begin);
    return result;
  };
  GrammarMatcher matcher = timed(copies, [&] { return grammar.matcher(); }).value();
  std::vector<std::uint32_t> mask(grammar.mask_words());
  for (int step = 0; step < 60; ++step) {
    if (timed(masks, [&] { return matcher.mask(mask); }).value() == MatchState::kComplete) return;
    std::vector<TokenId> allowed;
    for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if (mask_allows(mask, TokenId(id))) allowed.emplace_back(id);
    const TokenId token = allowed[random.below(allowed.size())];
    if (timed(accepts, [&] { return matcher.accept(token); }).value() == MatchState::kComplete) return;
  }
}

int run(const std::string& path) {
  const GgufFile file = std::move(GgufFile::open(path)).value();
  const Tokenizer tokenizer = std::move(Tokenizer::from_gguf(file)).value();
  GrammarCompiler compiler(tokenizer);
  const auto micros_since = [](double since) { return processor_micros() - since; };
  double begin = processor_micros();
  LOCI_CHECK(compiler.compile({GrammarKind::kChoice, R"(["x"])"}).ok(), "a choice compiles");
  fmt::print("{} tokens: environment {:.0f} ms\n", tokenizer.vocabulary_size(), micros_since(begin) / 1000);
  fmt::print("{:<18}{:>9}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "grammar", "compile", "copy", "mask 50%", "99%",
             "most", "accept", "most");
  for (const auto& [name, source] : kCases) {
    begin = processor_micros();
    const auto grammar = compiler.compile(source).value();
    const double compile = micros_since(begin);
    Times copies, masks, accepts;
    Random random(1);
    for (int i = 0; i < 20; ++i) walk(tokenizer, *grammar, random, copies, masks, accepts);
    fmt::print("{:<18}{:>9.0f}{:>8.0f}{:>9.0f}{:>9.0f}{:>9.0f}{:>9.1f}{:>9.0f}\n", name, compile,
               copies.at(0.5), masks.at(0.5), masks.at(0.99), masks.at(1), accepts.at(0.5), accepts.at(1));
  }
  return 0;
}

}  // namespace
}  // namespace loci

int main(int argc, char** argv) {
  return loci::run(argc > 1 ? argv[1]
                            : loci::environment("LOCI_BINARY_DIR") + "/testdata/ggml-vocab-gpt-2.gguf");
}
