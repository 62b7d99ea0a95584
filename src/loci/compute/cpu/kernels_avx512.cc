// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX-512 with VNNI; compiled with those flags and called only where the machine has them.
#define LOCI_KERNELS avx512_set
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_avx512.inl"
#include "loci/compute/cpu/kernels.inl"

namespace loci::cpu {

const KernelTable& avx512_kernels() {
  static const KernelTable table = avx512_set::make_table();
  return table;
}

}  // namespace loci::cpu
