// SPDX-License-Identifier: Apache-2.0
// Plain code's kernels, with products of wide tiles by an emulated AMX. Test code only: everywhere, tests run
// the logic that kernels_amx.cc runs on the machine.
#define LOCI_KERNELS emulated_tiles_set
#define LOCI_SIMD_PLAIN
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_plain.inl"
#include "loci/compute/cpu/emulated_tiles_testing.h"

#include "loci/compute/cpu/kernels_wide.inl"

namespace loci::cpu::emulated_tiles_set {
#include "loci/compute/cpu/tiles_emulated.inl"
}  // namespace loci::cpu::emulated_tiles_set

namespace loci::cpu {

const KernelTable& emulated_tiles_kernels() {
  static const KernelTable table = [] {
    KernelTable wide = plain_kernels();
    emulated_tiles_set::add_wide_tiles<emulated_tiles_set::EmulatedTiles>(wide);
    return wide;
  }();
  return table;
}

}  // namespace loci::cpu
