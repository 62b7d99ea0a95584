// SPDX-License-Identifier: Apache-2.0
// Products of one instruction set with weights of all types but those whose steps have 256 columns
// (products_k.inl); see simd.h for what the including file defines. They are compiled apart from kernels.inl
// because they take as long as all the rest.
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

template <class Type, int kRows>
static void fill_float(ProductKernel* row) {
  if constexpr (kRows > 0) {
    row[kRows - 1] = product_float<Type, kRows>;
    fill_float<Type, kRows - 1>(row);
  }
}

void add_products(KernelTable& table);
void add_products(KernelTable& table) {
  add_quantized<Q4_0, PackedType::kQ4_0>(table);
  add_quantized<Q4_1, PackedType::kQ4_1>(table);
  add_quantized<Q5_0, PackedType::kQ5_0>(table);
  add_quantized<Q5_1, PackedType::kQ5_1>(table);
  add_quantized<Q8_0, PackedType::kQ8_0>(table);
  add_quantized<IQ4_NL, PackedType::kIQ4_NL>(table);
  add_quantized<MXFP4, PackedType::kMXFP4>(table);
  fill_float<F32, kTileRows>(table.product[static_cast<int>(PackedType::kF32)]);
  fill_float<F16, kTileRows>(table.product[static_cast<int>(PackedType::kF16)]);
  fill_float<BF16, kTileRows>(table.product[static_cast<int>(PackedType::kBF16)]);
}

}  // namespace loci::cpu::LOCI_KERNELS
