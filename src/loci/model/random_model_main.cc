// SPDX-License-Identifier: Apache-2.0
// loci-random-model: writes a random model of a given shape and type, for benchmarks and tests.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "loci/base/units.h"
#include "loci/model/random_model_testing.h"

namespace {

loci::Status write_model(const std::string& path, const std::string& shape, const std::string& type,
                         const std::string& embedding_type, std::uint32_t context_tokens,
                         std::uint64_t seed) {
  LOCI_ASSIGN_OR_RETURN(loci::RandomModelOptions options, loci::find_random_model_shape(shape));
  options.seed = seed;
  if (context_tokens > 0) options.context_length = context_tokens;
  const auto find_type = [](const std::string& name) -> loci::Result<loci::TensorType> {
    std::string known;
    for (const loci::TensorTypeInfo& info : loci::supported_tensor_types()) {
      if (info.name == name) return info.type;
      known.append(" ").append(info.name);
    }
    return loci::invalid_argument("expected one of" + known + ", found \"" + name + "\"", "type");
  };
  if (!type.empty()) {
    LOCI_ASSIGN_OR_RETURN(options.type, find_type(type));
  }
  if (!embedding_type.empty()) {
    LOCI_ASSIGN_OR_RETURN(options.embedding_type, find_type(embedding_type));
  }
  LOCI_ASSIGN_OR_RETURN(const loci::GgufWriter writer, loci::make_random_model(options));
  return writer.write_file(path);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes a random model as a GGUF file.");
  std::string path, shape = "tiny", type, embedding_type;
  std::uint32_t context_tokens = 0;
  std::uint64_t seed = 1;
  app.add_option("FILE", path, "where to write it")->required();
  std::string shapes;
  for (const std::string_view known : loci::random_model_shapes()) shapes.append(" ").append(known);
  app.add_option("--shape", shape, "one of" + shapes);
  app.add_option("--type", type,
                 "of the matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q6_K (default: the shape's)");
  app.add_option("--embedding-type", embedding_type, "of embedding and output (default: the shape's)");
  app.add_option("--context", context_tokens, "the longest context, in tokens (default: the shape's)");
  app.add_option("--seed", seed, "of the random numbers");
  CLI11_PARSE(app, argc, argv);
  if (const loci::Status status = write_model(path, shape, type, embedding_type, context_tokens, seed);
      !status.ok()) {
    fmt::print(stderr, "loci-random-model: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
