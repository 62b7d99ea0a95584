// SPDX-License-Identifier: Apache-2.0
// Takes stored keys to other positions (truncation keeps state: AttentionStore §3.4). A key at position p is
// its unrotated self turned by p * frequency in every pair of dimensions, times the magnitude; turning it
// by delta * frequency more gives the key at p + delta. What a layer's rotation leaves alone (the dimensions
// beyond it, values, layers without one) stays bit for bit.
//
// Exactness. Cosine and sine in float64, rounded once to float32; one fused operation an element; rounded
// once as state is. So the result differs from what the model would have computed at p + delta by the
// rounding of the stored key and of the result alone. The same bits on every instruction set. (In q8 a
// dimension that is not rotated shares its scale with some that are, and may be rounded with them.)
//
// Immutable; thread-safe. Some 0.1 ms for a block of a model of 30 layers and 192 key dimensions.
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
  // All must outlive it.
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
