// SPDX-License-Identifier: Apache-2.0
// What the JSON files of a Hugging Face directory say, under GGUF's keys.
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

// Errors: as HuggingFaceSource::open, but for tensors.
Result<DirectoryMetadata> read_directory_metadata(const std::string& directory);

}  // namespace loci
