// SPDX-License-Identifier: Apache-2.0
// Grammars of every kind from any bytes, followed for some tokens: must never crash, and every token of a
// mask must be accepted.
#include <cstddef>
#include <cstdint>
#include <string>

#include "loci/model/grammar.h"
#include "loci/model/text_testing.h"

namespace loci {
namespace {

void follow(const Grammar& grammar, std::string_view choices) {
  Result<GrammarMatcher> matcher = grammar.matcher();
  if (!matcher.ok()) __builtin_trap();
  std::vector<std::uint32_t> mask(grammar.mask_words());
  for (const char choice : choices.substr(0, 24)) {
    const Result<MatchState> state = matcher->mask(mask);
    if (!state.ok() || *state == MatchState::kComplete || *state == MatchState::kStuck) return;
    std::vector<TokenId> allowed;
    for (std::uint32_t id = 0; id < grammar.vocabulary(); ++id)
      if (mask_allows(mask, TokenId(id))) allowed.emplace_back(id);
    if (allowed.empty()) __builtin_trap();
    const TokenId token = allowed[static_cast<unsigned char>(choice) * allowed.size() / 256];
    if (!matcher->accept(token).ok()) __builtin_trap();
  }
}

}  // namespace
}  // namespace loci

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loci;
  static const Tokenizer tokenizer =
      std::move(tokenizer_from(byte_level_writer({"<|tool|>"}, {}, 400))).value();
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static GrammarCompiler compiler(tokenizer);
  const auto grammar = compiler.compile({static_cast<GrammarKind>(data[0] % 6), text});
  if (grammar.ok()) {
    follow(**grammar, text);
  } else if (grammar.status().message().empty()) {
    __builtin_trap();
  }
  return 0;
}
