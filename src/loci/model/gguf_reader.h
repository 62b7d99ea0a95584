// SPDX-License-Identifier: Apache-2.0
// The parser of GgufFile: from bytes to metadata and tensor views. It keeps nothing but what it returns; the
// memory is at most a small multiple of the bytes given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/gguf.h"

namespace loci {

struct GgufContents {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<TensorView> tensors;  // point into the bytes that were parsed
  std::vector<OpaqueTensor> opaque_tensors;
};

// Errors: those of GgufFile::open().
Result<GgufContents> read_gguf(std::span<const std::byte> bytes);

}  // namespace loci
