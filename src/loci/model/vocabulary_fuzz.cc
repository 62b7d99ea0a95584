// SPDX-License-Identifier: Apache-2.0
// Fuzzes the vocabularies of GGUF files of every kind, and their pre-tokenizers. Seeds come from
// vocabulary_corpus.
#include <cstdint>

#include "loci/model/gguf.h"
#include "loci/model/tokenizer_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = loci::GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  const auto tokenizer = loci::Tokenizer::from_gguf(*file);
  if (!tokenizer.ok()) {
    if (tokenizer.status().field().empty() || tokenizer.status().message().empty()) __builtin_trap();
    return 0;
  }
  const auto text = file->get_string("general.name");
  loci::exercise_tokenizer(*tokenizer, text.ok() ? std::string_view(*text) : std::string_view());
  return 0;
}
