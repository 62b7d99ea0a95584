// SPDX-License-Identifier: Apache-2.0
// vocabulary_corpus FOLDER: writes the seeds of vocabulary_fuzz: a small vocabulary of each kind.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "loci/model/gguf_writer_testing.h"
#include "loci/model/random_vocabulary_testing.h"

namespace {

using loci::GgufArray;
using loci::GgufWriter;

GgufWriter named(const std::string& model) {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", model);
  writer.add("general.name", std::string("a text: caf\u00e9 12"));
  return writer;
}

GgufWriter byte_level(const std::string& pre) {
  loci::BpeVocabulary vocabulary = loci::make_bpe_vocabulary(0);
  GgufWriter writer = named("gpt2");
  writer.add("tokenizer.ggml.pre", pre);
  writer.add_strings("tokenizer.ggml.tokens", std::move(vocabulary.tokens));
  writer.add_ints("tokenizer.ggml.token_type", std::move(vocabulary.token_types));
  writer.add_strings("tokenizer.ggml.merges", std::move(vocabulary.merges));
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  return writer;
}

GgufWriter pieces(const std::string& model) {
  GgufWriter writer = named(model);
  writer.add_strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "\u2581", "a", "b",
                                               "ab", "\u2581a", "tool"});
  writer.add_ints("tokenizer.ggml.token_type", {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 4});
  if (model == "gemma4")
    writer.add_strings("tokenizer.ggml.merges", {"a b", "\u2581 a"});
  else
    writer.add("tokenizer.ggml.scores", GgufArray{std::vector<float>{0, 0, 0, 0, 0, -1, -2, -3, -4, -5, -6}});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.add_space_prefix", true);
  if (model == "t5") {
    writer.add("tokenizer.ggml.remove_extra_whitespaces", true);
    // A trie of 256 empty units, and a replacement.
    std::vector<std::uint8_t> map(4 + 1024 + 2);
    map[1] = 4;
    map[4 + 1024] = 'a';
    writer.add("tokenizer.ggml.precompiled_charsmap", GgufArray{std::move(map)});
  }
  return writer;
}

loci::Status write_seeds(const std::filesystem::path& folder) {
  for (const char* pre : {"smollm", "llama-bpe", "qwen2", "deepseek-llm", "gpt-4o", "falcon", "kimi-k2"})
    LOCI_RETURN_IF_ERROR(byte_level(pre).write_file(folder / fmt::format("{}.gguf", pre)));
  for (const char* model : {"llama", "t5", "gemma4"})
    LOCI_RETURN_IF_ERROR(pieces(model).write_file(folder / fmt::format("{}.gguf", model)));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: vocabulary_corpus FOLDER\n");
    return 2;
  }
  std::error_code error;
  std::filesystem::create_directories(argv[1], error);
  if (const loci::Status status = write_seeds(argv[1]); !status.ok()) {
    fmt::print(stderr, "vocabulary_corpus: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
