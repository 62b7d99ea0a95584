// SPDX-License-Identifier: Apache-2.0
// Fuzzes encoding and decoding on a small vocabulary: what goes in comes out, plain text holds no control
// token, a stream decodes as the whole does.
#include <cstdint>

#include "loci/model/text_testing.h"
#include "loci/model/utf8.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

const loci::Tokenizer& tokenizer() {
  static const loci::Tokenizer made =
      std::move(loci::tokenizer_from(loci::byte_level_writer({"<tool>", "word"}, {"<think>", "<tool"}, 2000)))
          .value();
  return made;
}

void check(std::string_view text, loci::ControlText control) {
  const auto tokens = tokenizer().encode(text, control);
  std::string cleaned;
  loci::append_utf8_final(text, cleaned);
  expect(tokens.ok() == (cleaned == text));
  if (!tokens.ok()) return;
  expect(tokenizer().decode(*tokens, control).value() == text);
  loci::StreamDecoder stream(tokenizer());
  std::string streamed;
  for (const loci::TokenId token : *tokens) {
    expect(control == loci::ControlText::kAsControl || !tokenizer().is_control(token));
    streamed += stream.push(token);
  }
  streamed += stream.finish();
  expect(streamed == tokenizer().decode(*tokens, loci::ControlText::kAsText).value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text, loci::ControlText::kAsText);
  check(text, loci::ControlText::kAsControl);
  return 0;
}
