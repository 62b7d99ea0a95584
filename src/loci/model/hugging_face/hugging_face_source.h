// SPDX-License-Identifier: Apache-2.0
// A Hugging Face directory as a ModelSource: config.json and generation_config.json, tokenizer.json and
// tokenizer_config.json, and safetensors, whole or in shards.
//
// Beside a family's own keys its metadata has the directory's values about text:
//   tokenizer.huggingface.json, tokenizer.huggingface.config   the two files' text
//   tokenizer.chat_template                                    from chat_template.jinja or the config
//   tokenizer.ggml.bos_token_id, tokenizer.ggml.end_token_ids  from (generation_)config.json
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/model_source.h"

namespace loci {

struct HuggingFaceOptions {
  // The type as which the layers' matrices are encoded while they are loaded; absent: as published.
  std::optional<TensorType> quantize;
  unsigned threads = 0;  // threads that encode; 0: one for each processor
};

// Tensors with the file's own bytes are views of its map; other tensors are owned.
class HuggingFaceSource final : public ModelSource {
 public:
  // Errors: those of open_shards() and plan_tensors(); kNotFound without config.json; kInvalidArgument naming
  // the field of config.json, and for an unknown model_type the known ones.
  static Result<HuggingFaceSource> open(const std::string& directory, const HuggingFaceOptions& options);
  HuggingFaceSource(HuggingFaceSource&&) noexcept;
  HuggingFaceSource& operator=(HuggingFaceSource&&) noexcept;
  ~HuggingFaceSource() override;

  std::uint64_t file_bytes() const;  // of the safetensors
  // Notes for people: as which types tensors were encoded, and which could not be.
  const std::vector<std::string>& notes() const;
  SourceFormat format() const override { return SourceFormat::kHuggingFace; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const override;
  const std::vector<TensorView>& tensors() const override;
  const std::vector<OpaqueTensor>& opaque_tensors() const override;
  const TensorView* find_tensor(std::string_view name) const override;
  const OpaqueTensor* find_opaque_tensor(std::string_view name) const override;

 private:
  struct State;
  explicit HuggingFaceSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loci
