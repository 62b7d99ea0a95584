// SPDX-License-Identifier: Apache-2.0
// Takes a layer's stored keys to other positions, on the host: cpu/key_rotation.h for this backend's layout
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

}  // namespace loci::cuda
