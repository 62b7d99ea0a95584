// SPDX-License-Identifier: Apache-2.0
// The kernels of wide tiles over one instruction set's vectors; see simd.h for what the including file
// defines. It adds the tile unit itself.
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/simd.h"

namespace loci::cpu::LOCI_KERNELS {

using u8 = uint8_t;
using i8 = int8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using i32 = int32_t;

#include LOCI_SIMD_FILE

#include "loci/compute/cpu/product_quantized.inl"

#include "loci/compute/cpu/product_float.inl"

#include "loci/compute/cpu/product_tiles.inl"

}  // namespace loci::cpu::LOCI_KERNELS
