// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX2, FMA and F16C; compiled with those flags and called only where the machine has them.
#define LOCI_KERNELS avx2_set
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_avx2.inl"
#include "loci/compute/cpu/kernels.inl"

namespace loci::cpu {

const KernelTable& avx2_kernels() {
  static const KernelTable table = avx2_set::make_table();
  return table;
}

}  // namespace loci::cpu
