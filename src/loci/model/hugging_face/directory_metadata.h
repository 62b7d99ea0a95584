// SPDX-License-Identifier: Apache-2.0
// Metadata from the JSON files of a Hugging Face directory, under GGUF's keys.
#pragma once

#include <map>
#include <string>

#include "loci/base/status.h"
#include "loci/model/families/hugging_face.h"
#include "loci/model/model_source.h"

namespace loci {

struct DirectoryMetadata {
  const PublishedFamily* family = nullptr;
  std::map<std::string, GgufValue, std::less<>> metadata;
};

// Errors: those of HuggingFaceSource::open(), except those of tensors.
Result<DirectoryMetadata> read_directory_metadata(const std::string& directory);

}  // namespace loci
