// SPDX-License-Identifier: Apache-2.0
// gguf_corpus FOLDER: writes the seeds of gguf_fuzz: a small model of each tensor type and option, and
// a file with every metadata type.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "loci/model/random_model_testing.h"

namespace {

loci::GgufWriter make_zoo() {
  using loci::GgufArray;
  loci::GgufWriter writer(64);
  writer.add("u8", std::uint8_t{1});
  writer.add("i8", std::int8_t{-1});
  writer.add("u16", std::uint16_t{2});
  writer.add("i16", std::int16_t{-2});
  writer.add("u32", std::uint32_t{3});
  writer.add("i32", std::int32_t{-3});
  writer.add("f32", 0.5f);
  writer.add("bool", true);
  writer.add("string", std::string("text"));
  writer.add("u64", std::uint64_t{4});
  writer.add("i64", std::int64_t{-4});
  writer.add("f64", 0.25);
  writer.add("bools", GgufArray{std::vector<bool>{true, false}});
  writer.add("nested", GgufArray{std::vector<GgufArray>{{std::vector<std::string>{"a", ""}},
                                                        {std::vector<double>{1}}}});
  writer.add_tensor("q6_k", loci::TensorType::kQ6_K, 1, 256, std::vector<std::byte>(210, std::byte{0x5a}));
  writer.add_raw_tensor("opaque", 16, {256}, std::vector<std::byte>(66));
  writer.add_raw_tensor("unknown", 99, {7, 3}, std::vector<std::byte>(64));
  return writer;
}

loci::Status write_seeds(const std::filesystem::path& folder) {
  LOCI_RETURN_IF_ERROR(make_zoo().write_file(folder / "zoo.gguf"));
  for (const loci::TensorTypeInfo& info : loci::supported_tensor_types()) {
    if (info.block_elements == 256) continue;  // its smallest model is too large for a seed
    const std::uint32_t size = info.block_elements == 1 ? 8 : info.block_elements;
    loci::RandomModelOptions options{.type = info.type,
                                     .hidden = size,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .head_dim = size / 2,
                                     .ffn = size,
                                     .layers = 1,
                                     .vocabulary = 2,
                                     .tokenizer = false};
    LOCI_ASSIGN_OR_RETURN(const loci::GgufWriter plain, loci::make_random_model(options));
    LOCI_RETURN_IF_ERROR(plain.write_file(folder / fmt::format("{}.gguf", info.name)));
    options.biases = options.rope_factors = true;
    options.tied_embedding = false;
    options.rope_linear_factor = 2;
    LOCI_ASSIGN_OR_RETURN(const loci::GgufWriter rich, loci::make_random_model(options));
    LOCI_RETURN_IF_ERROR(rich.write_file(folder / fmt::format("{}-rich.gguf", info.name)));
  }
  LOCI_ASSIGN_OR_RETURN(const loci::GgufWriter whole,
                        loci::make_random_model(
                            {.hidden = 8, .heads = 1, .kv_heads = 1, .head_dim = 8, .ffn = 8, .layers = 1}));
  return whole.write_file(folder / "tokenizer.gguf");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: gguf_corpus FOLDER\n");
    return 2;
  }
  std::error_code error;
  std::filesystem::create_directories(argv[1], error);
  if (const loci::Status status = write_seeds(argv[1]); !status.ok()) {
    fmt::print(stderr, "gguf_corpus: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
