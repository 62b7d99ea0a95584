// SPDX-License-Identifier: Apache-2.0
// The kernels for portable code, the definition that the other sets match.
#define LOCI_KERNELS plain_set
#define LOCI_SIMD_PLAIN
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_plain.inl"
#include "loci/compute/cpu/kernels.inl"

namespace loci::cpu {

const KernelTable& plain_kernels() {
  static const KernelTable table = plain_set::make_table();
  return table;
}

}  // namespace loci::cpu
