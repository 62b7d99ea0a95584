// SPDX-License-Identifier: Apache-2.0
// Fuzzes reading of GGUF files: parsing, typed look-ups, decoding of rows, the specification with its
// fingerprint. Seeds come from gguf_corpus:
//   cmake --preset fuzz && ninja -C build/fuzz gguf_fuzz gguf_corpus
//   build/fuzz/gguf_corpus SEEDS && mkdir -p FOUND && build/fuzz/gguf_fuzz -max_len=20000 FOUND SEEDS
#include <cstdint>

#include "loci/model/gguf_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const loci::Exercised exercised = loci::exercise_gguf(std::as_bytes(std::span(data, size)));
  // An error says what it is about.
  for (const loci::Status& status : {exercised.parsed, exercised.specified}) {
    if (!status.ok() && (status.field().empty() || status.message().empty())) __builtin_trap();
  }
  return 0;
}
