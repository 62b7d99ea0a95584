// SPDX-License-Identifier: Apache-2.0
// Fuzzes tokenizer.json: the file's bytes up to the first byte 0x01, then a text. Seeds lie in
// corpus/tokenizer_json_fuzz.
#include <cstdint>

#include "loci/model/memory_source_testing.h"
#include "loci/model/tokenizer_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\1');
  const std::string_view text = end == input.npos ? std::string_view() : input.substr(end + 1);
  const auto tokenizer = loci::Tokenizer::from_tokenizer_json(loci::tokenizer_source(
      std::string(input.substr(0, end)), R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})"));
  if (!tokenizer.ok()) {
    if (tokenizer.status().field().empty() || tokenizer.status().message().empty()) __builtin_trap();
    return 0;
  }
  loci::exercise_tokenizer(*tokenizer, text);
  return 0;
}
