// SPDX-License-Identifier: Apache-2.0
// The tensors of a Hugging Face directory: of model.safetensors, or of the shards that
// model.safetensors.index.json lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/file_map.h"
#include "loci/model/hugging_face/safetensors.h"

namespace loci {

// Immutable and thread-safe. Owns the maps, which the tensors point into.
struct Shards {
  std::vector<FileMap> maps;
  std::vector<SafetensorsTensor> tensors;  // shard by shard, in the order of their bytes
  std::uint64_t file_bytes = 0;            // of all shards
};

// Errors: those of read_safetensors(), with the shard's path; kNotFound if the directory has no safetensors
// or lacks a shard; kInvalidArgument if the index names a file outside the directory; kDataLoss if a tensor
// is missing or lies in another shard than the index says, or if total_size is not the sum.
Result<Shards> open_shards(const std::string& directory);

}  // namespace loci
