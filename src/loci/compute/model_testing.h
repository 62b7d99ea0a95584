// SPDX-License-Identifier: Apache-2.0
// Random tiny models in memory, for the tests of backends and of what runs on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "loci/base/check.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"
#include "loci/model/random_spec_testing.h"

namespace loci {

// A spec and the owner of its tensors. It must not be moved.
struct TestModel {
  std::vector<std::byte> bytes;
  std::optional<GgufFile> file;
  std::unique_ptr<RandomSpec> random;
  ModelSpec spec;

  // A model with the layers of any family, by seed.
  static std::unique_ptr<TestModel> make(std::uint64_t seed) {
    auto model = std::make_unique<TestModel>();
    model->random = make_random_spec(seed);
    model->spec = model->random->spec;
    return model;
  }
  // A Llama without a tokenizer. A vocabulary of 0 stands for 72.
  static std::unique_ptr<TestModel> make(RandomModelOptions options) {
    options.tokenizer = false;
    if (options.vocabulary == 0) options.vocabulary = 72;  // not a multiple of 16
    auto model = std::make_unique<TestModel>();
    Result<GgufWriter> writer = make_random_model(options);
    LOCI_CHECK(writer.ok(), "the options are valid");
    model->bytes = writer->to_bytes();
    Result<GgufFile> file = GgufFile::parse(model->bytes);
    LOCI_CHECK(file.ok(), "the model is valid");
    model->file = std::move(*file);
    Result<ModelSpec> spec = read_model_spec(*model->file);
    LOCI_CHECK(spec.ok(), "the model is complete");
    model->spec = std::move(*spec);
    return model;
  }
  // A Llama with one layer for each window; 0: a layer that sees all tokens.
  static std::unique_ptr<TestModel> make(RandomModelOptions options,
                                         const std::vector<std::uint32_t>& windows) {
    options.layers = static_cast<std::uint32_t>(windows.size());
    std::unique_ptr<TestModel> model = make(options);
    for (std::size_t i = 0; i < windows.size(); ++i) model->spec.layers[i].window = windows[i];
    return model;
  }
};

// A model to run a test on: a Llama, or a model with the layers of any family by its seed.
struct NamedShape {
  std::string name;
  std::variant<RandomModelOptions, std::uint64_t> source;

  std::unique_ptr<TestModel> make() const {
    return std::visit([](const auto& from) { return TestModel::make(from); }, source);
  }
  friend void PrintTo(const NamedShape& shape, std::ostream* out) { *out << shape.name; }
};

}  // namespace loci
