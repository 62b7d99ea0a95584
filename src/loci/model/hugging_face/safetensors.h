// SPDX-License-Identifier: Apache-2.0
// The safetensors format: an unsigned 64-bit length, a JSON header of that many bytes, then the tensors'
// bytes one after the other. Every length and offset is checked against the file before it is used; a damaged
// file is refused with an error that names the tensor or field and the byte offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"

namespace loci {

// The longest header that the format allows.
inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

struct SafetensorsType {
  std::string_view name;  // "BF16"
  std::uint32_t bytes;    // of one element
};

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;  // never null in what read_safetensors() returns
  std::vector<std::uint64_t> shape;       // outermost first; empty for a scalar
  std::span<const std::byte> bytes;       // they point into the parsed bytes, with any alignment
};

// The tensors in the order of their bytes. Errors: kInvalidArgument (not safetensors: the length, JSON
// syntax, a field of the wrong kind, an unknown dtype), kDataLoss (truncated; offsets outside the file,
// overlapping or with a gap; a shape whose size is not that of its offsets).
Result<std::vector<SafetensorsTensor>> read_safetensors(std::span<const std::byte> bytes);

}  // namespace loci
