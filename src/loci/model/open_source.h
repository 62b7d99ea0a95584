// SPDX-License-Identifier: Apache-2.0
// One way to open whatever a user names as a model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/model_source.h"

namespace loci {

struct LoadOptions {
  // What the layers' matrices of a Hugging Face directory are encoded as; see parse_quantize().
  std::optional<TensorType> quantize;
  unsigned threads = 0;  // that encode; 0: one for each processor
};

struct OpenedSource {
  std::unique_ptr<ModelSource> source;
  std::string format;              // "GGUF version 3, 2 parts", "Hugging Face directory"
  std::uint64_t file_bytes = 0;    // of everything that holds tensors
  std::vector<std::string> notes;  // what people should know: how tensors were encoded
};

// A GGUF file, the first part of a split one, or a directory with config.json and safetensors.
// Errors: as GgufFile::open, SplitGguf::open, HuggingFaceSource::open; kInvalidArgument for
// options.quantize with a GGUF file.
Result<OpenedSource> open_model_source(const std::string& path, const LoadOptions& options = {});

// "q8_0", "q4_0", "q4_k". Errors: kInvalidArgument with the list.
Result<TensorType> parse_quantize(std::string_view name);

}  // namespace loci
