// Encoding float32 rows as GGUF tensor types: plain round-to-nearest quantisers for tests and random
// models. (Models for use are quantised by tools that weigh errors; Loci reads those.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "loci/model/tensor.h"

namespace loci {

// Encodes one row. `values` is a whole number of blocks of `type` and finite; `out` holds its encoded
// bytes. Errors of one element against decode_row(), beyond those of the f16 scale: at most half a step
// of its block (Q4_0 at the end of its range: one step).
void encode_row(TensorType type, std::span<const float> values, std::span<std::byte> out);

std::uint16_t f32_to_bf16(float value);  // round to nearest even; finite values

}  // namespace loci
