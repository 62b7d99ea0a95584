// SPDX-License-Identifier: Apache-2.0
// Encodes float32 rows as GGUF tensor types. Q8_0, Q4_0 and Q4_K, for weights that are quantised at load,
// search for the scales of least squared error. The other types, for tests and random models, are encoded
// plainly.
//
// Cost: a few ns an element for plain types, about 15 for Q4_0 and Q5_0, 35 for the K types with minima.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "loci/model/tensor.h"

namespace loci {

// Encodes one row. `values` is a whole number of blocks of `type` and finite; `out` holds its encoded
// bytes. Deterministic. An element's error against decode_row() is at most about half a step of its block
// for F16, BF16, Q8_0, Q4_1 and Q6_K, at most about one step for the others.
void encode_row(TensorType type, std::span<const float> values, std::span<std::byte> out);

std::uint16_t f32_to_bf16(float value);  // round to nearest even; finite values

}  // namespace loci
