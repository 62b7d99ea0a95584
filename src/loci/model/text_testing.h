// SPDX-License-Identifier: Apache-2.0
// Shared by the tests, fuzz targets and benchmarks of tokenizer and chat template.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "loci/base/check.h"
#include "loci/model/default_model.h"
#include "loci/model/gguf.h"
#include "loci/model/gguf_writer_testing.h"
#include "loci/model/random_vocabulary_testing.h"
#include "loci/model/tokenizer.h"

namespace loci {

inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

inline std::string source_file(const std::string& name) {
  return environment("LOCI_SOURCE_DIR") + "/" + name;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  LOCI_CHECK(file.good(), path.c_str());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::ordered_json read_golden(const std::string& name) {
  return nlohmann::ordered_json::parse(read_file(source_file("tests/data/text/" + name)));
}

inline std::vector<std::uint32_t> numbers(const std::vector<TokenId>& tokens) {
  std::vector<std::uint32_t> values;
  for (const TokenId token : tokens) values.push_back(token.value);
  return values;
}

inline std::vector<std::uint32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                                         ControlText control = ControlText::kAsText) {
  const Result<std::vector<TokenId>> tokens = tokenizer.encode(text, control);
  LOCI_CHECK(tokens.ok(), tokens.status().to_string().c_str());
  return numbers(*tokens);
}

inline Result<Tokenizer> tokenizer_from(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes();
  LOCI_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes));
  return Tokenizer::from_gguf(file);
}

// A byte-level vocabulary of `size` tokens (make_bpe_vocabulary), followed by control and user-defined
// tokens.
inline GgufWriter byte_level_writer(std::vector<std::string> control, std::vector<std::string> user_defined,
                                    std::uint32_t size = 0) {
  BpeVocabulary vocabulary = make_bpe_vocabulary(size);
  for (std::string& text : control) {
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.token_types.push_back(3);
  }
  for (std::string& text : user_defined) {
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.token_types.push_back(4);
  }
  GgufWriter writer;
  add_bpe_vocabulary(writer, std::move(vocabulary));
  return writer;
}

}  // namespace loci
