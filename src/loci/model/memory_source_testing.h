// SPDX-License-Identifier: Apache-2.0
// A ModelSource made of data in memory, for tests and fuzz targets.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loci/model/model_source.h"

namespace loci {

// Thread-compatible while it is filled.
class MemorySource final : public ModelSource {
 public:
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<TensorView> views;
  std::vector<OpaqueTensor> opaques;

  SourceFormat format() const override { return SourceFormat::kHuggingFace; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const override { return values; }
  const std::vector<TensorView>& tensors() const override { return views; }
  const std::vector<OpaqueTensor>& opaque_tensors() const override { return opaques; }
  const TensorView* find_tensor(std::string_view name) const override {
    for (const TensorView& view : views)
      if (view.name == name) return &view;
    return nullptr;
  }
  const OpaqueTensor* find_opaque_tensor(std::string_view) const override { return nullptr; }
};

// The source of a directory with this tokenizer.json and an embedding of `rows` rows (0: unknown).
inline MemorySource tokenizer_source(std::string tokenizer, std::string config = "{}",
                                     std::uint64_t rows = 0) {
  MemorySource source;
  source.values["tokenizer.huggingface.json"] = std::move(tokenizer);
  source.values["tokenizer.huggingface.config"] = std::move(config);
  if (rows != 0) source.views.push_back({.name = "token_embd.weight", .rows = rows, .columns = 1});
  return source;
}

}  // namespace loci
