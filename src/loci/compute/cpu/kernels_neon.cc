// SPDX-License-Identifier: Apache-2.0
// The kernels for 64-bit Arm with dot products; compiled with those flags and called only where the machine
// has them.
#define LOCI_KERNELS neon_set
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_neon.inl"
#include "loci/compute/cpu/kernels.inl"

namespace loci::cpu {

const KernelTable& neon_kernels() {
  static const KernelTable table = neon_set::make_table();
  return table;
}

}  // namespace loci::cpu
