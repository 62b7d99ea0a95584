// SPDX-License-Identifier: Apache-2.0
// AVX-512's kernels, with products of wide tiles by AMX; called only where the machine has both and the
// system lets this process use them.
#define LOCI_KERNELS amx_set
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_avx512.inl"
#include "loci/compute/cpu/kernels_wide.inl"

namespace loci::cpu::amx_set {
#include "loci/compute/cpu/tiles_machine.inl"
}  // namespace loci::cpu::amx_set

namespace loci::cpu {

const KernelTable& amx_kernels() {
  static const KernelTable table = [] {
    KernelTable wide = avx512_kernels();
    amx_set::add_wide_tiles<amx_set::MachineTiles>(wide);
    return wide;
  }();
  return table;
}

}  // namespace loci::cpu
