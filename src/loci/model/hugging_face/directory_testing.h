// SPDX-License-Identifier: Apache-2.0
// Writes Hugging Face directories for tests: safetensors files, and a random model of the family llama in
// both formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/model/gguf.h"
#include "loci/model/random_model_testing.h"

namespace loci {

void write_text(const std::string& path, std::string_view text);

// Collects tensors, then writes them one after the other. Nothing is checked.
class SafetensorsBuilder {
 public:
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;

  void add(const std::string& name, const std::string& dtype, std::vector<std::uint64_t> shape,
           std::span<const std::byte> bytes);
  void add_floats(const std::string& name, std::vector<std::uint64_t> shape,
                  const std::vector<float>& values) {
    add(name, "F32", std::move(shape), std::as_bytes(std::span(values)));
  }
  // The file, padded with blanks as writers do, so that data begins at a multiple of 8.
  std::string text() const;
};

// Puts rows of queries or keys from GGUF's order (pairs that rotate lie side by side) back into the published
// order.
std::vector<float> unpermuted(const std::vector<float>& values, std::uint64_t columns,
                              std::uint64_t head_dim);

// The tokenizer.json of a byte-level GGUF vocabulary whose pre-tokenizer is "smollm".
nlohmann::json publish_tokenizer(const GgufFile& file);

// The model of `options`, which has a float type, in published form: its tensors and config.json.
struct PublishedModel {
  SafetensorsBuilder tensors;
  nlohmann::json config;
};

PublishedModel publish_llama(const GgufFile& file, const RandomModelOptions& options);

}  // namespace loci
