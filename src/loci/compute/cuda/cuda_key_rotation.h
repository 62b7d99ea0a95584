// SPDX-License-Identifier: Apache-2.0
// Changes a layer's slice on the host: moves its keys to other positions, or zeroes its last tokens.
//
// Rotation is that of cpu/key_rotation.h, for this backend's layout and element types. Cosine and sine are
// computed in float64 and rounded once; fused operations are in float32, and results are rounded once to the
// element type. Values beyond its range become its largest value, as when a pass stores keys. With f16 the
// bits are those of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "loci/compute/cuda/element_type.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

// `slice`: a layer of a block, as block_layout.h lays it out, aligned to 16 bytes. Thread-safe.
void rotate_block_keys(const ModelSpec& spec, ElementType element, std::uint32_t layer, std::int32_t delta,
                       std::span<std::byte> slice);

// Zeroes the tokens of such a slice from `first` on. Thread-safe.
void clear_block_tokens(const ModelSpec& spec, std::uint32_t layer, std::uint32_t first,
                        std::span<std::byte> slice);

}  // namespace loci::cuda
