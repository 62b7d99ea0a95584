// SPDX-License-Identifier: Apache-2.0
// Fuzzes the reading of safetensors files: every input gives an error with a message, or tensors whose bytes
// lie inside the file. Seeds lie in corpus/safetensors_fuzz.
#include <cstdint>

#include "loci/model/hugging_face/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto tensors = loci::read_safetensors(bytes);
  if (!tensors.ok()) {
    if (tensors.status().field().empty() || tensors.status().message().empty()) __builtin_trap();
    return 0;
  }
  std::size_t total = 0;
  for (const loci::SafetensorsTensor& tensor : *tensors) {
    const std::byte *begin = tensor.bytes.data(), *end = begin + tensor.bytes.size();
    if (tensor.name.empty() || tensor.type == nullptr) __builtin_trap();
    if (begin < bytes.data() || end > bytes.data() + bytes.size()) __builtin_trap();
    total += tensor.bytes.size();
  }
  if (total > size) __builtin_trap();
  return 0;
}
