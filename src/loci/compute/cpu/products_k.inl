// SPDX-License-Identifier: Apache-2.0
// Products of one instruction set with weights of types whose steps have 256 columns; see simd.h for what the
// including file defines. They are compiled apart from the others because they take as long as all the rest.
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

void add_products_of_256_columns(KernelTable& table);
void add_products_of_256_columns(KernelTable& table) {
  add_quantized<Q2_K, PackedType::kQ2_K>(table);
  add_quantized<Q3_K, PackedType::kQ3_K>(table);
  add_quantized<Q4_K, PackedType::kQ4_K>(table);
  add_quantized<Q5_K, PackedType::kQ5_K>(table);
  add_quantized<Q6_K, PackedType::kQ6_K>(table);
  add_quantized<IQ4_XS, PackedType::kIQ4_XS>(table);
}

}  // namespace loci::cpu::LOCI_KERNELS
