// SPDX-License-Identifier: Apache-2.0
// Moves stored keys to other positions, so that truncation can keep state (AttentionStore §3.4). A key at
// position p is the unrotated key turned by p * frequency in every pair of dimensions, times the magnitude.
// Turning it further by delta * frequency gives the key at p + delta. Parts that are not rotated (further
// dimensions, values, layers without rotation) keep their bits.
//
// Exactness. Cosine and sine are computed in float64 and rounded once to float32. Each element takes one
// fused operation and is rounded once, as state is. So the result differs from the key that the model would
// have computed at p + delta only by the rounding of the stored key and of the result. All instruction sets
// give the same bits. (In q8 a dimension that is not rotated shares its scale with some that are, and may be
// rounded with them.)
//
// Immutable; thread-safe. A block of a model of 30 layers and 192 key dimensions takes about 0.1 ms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/state_layout.h"
#include "loci/model/model_spec.h"

namespace loci::cpu {

class KeyRotation {
 public:
  // All arguments must outlive this.
  KeyRotation(const ModelSpec& spec, const KernelTable& kernels, const StateLayout& layout)
      : spec_(spec), kernels_(layout.kernels(kernels)), layout_(layout) {}

  // `slice`: a layer of a block, as state_layout.h lays it out.
  void rotate(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const;

 private:
  const ModelSpec& spec_;
  const StateKernels& kernels_;
  const StateLayout& layout_;
};

}  // namespace loci::cpu
