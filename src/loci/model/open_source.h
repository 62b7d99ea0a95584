// SPDX-License-Identifier: Apache-2.0
// Opens whatever a user names as a model.
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
  // The type as which the layers' matrices of a Hugging Face directory are encoded; see parse_quantize().
  std::optional<TensorType> quantize;
  unsigned threads = 0;  // threads that encode; 0: one for each processor
};

struct OpenedSource {
  std::unique_ptr<ModelSource> source;
  std::string format;              // "GGUF version 3, 2 parts", "Hugging Face directory"
  std::uint64_t file_bytes = 0;    // of all files that hold tensors
  std::vector<std::string> notes;  // notes for people: how tensors were encoded
};

// A GGUF file, the first part of a split one, or a directory with config.json and safetensors. Errors: those
// of GgufFile::open(), SplitGguf::open() and HuggingFaceSource::open(); kInvalidArgument for options.quantize
// with a GGUF file.
Result<OpenedSource> open_model_source(const std::string& path, const LoadOptions& options = {});

// "q8_0", "q4_0", "q4_k". Errors: kInvalidArgument with the list.
Result<TensorType> parse_quantize(std::string_view name);

}  // namespace loci
