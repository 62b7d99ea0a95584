// SPDX-License-Identifier: Apache-2.0
// Changes a layer's slice on the host: takes its keys to other positions, clears what follows some of its
// tokens.
//
// Rotation is cpu/key_rotation.h for this backend's layout
// and element types. Cosine and sine in float64, rounded once; fused operations in float32; rounded once to
// the element type; what it cannot hold becomes its largest value, as where a pass stores keys. In f16 the
// same bits as on the CPU.
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

// What the tokens from `first` on left in such a slice becomes zeros. Thread-safe.
void clear_block_tokens(const ModelSpec& spec, std::uint32_t layer, std::uint32_t first,
                        std::span<std::byte> slice);

}  // namespace loci::cuda
