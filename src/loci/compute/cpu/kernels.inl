// SPDX-License-Identifier: Apache-2.0
// All kernels of one instruction set, but for products of types with steps of 256 columns (products_k.inl);
// see simd.h for what the including file defines.
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

#include "loci/compute/cpu/elementwise.inl"

#include "loci/compute/cpu/state_f16.inl"

#include "loci/compute/cpu/state_q8.inl"

#include "loci/compute/cpu/attention.inl"

#include "loci/compute/cpu/attention_q8.inl"

template <class Type, int kRows>
static void fill_float(ProductKernel* row) {
  if constexpr (kRows > 0) {
    row[kRows - 1] = product_float<Type, kRows>;
    fill_float<Type, kRows - 1>(row);
  }
}
// products_k_*.cc
void add_products_of_256_columns(KernelTable& table);

// In the order of Activation (model_spec.h).
template <class... Types>
static void fill_activations(KernelTable& table) {
  static_assert(sizeof...(Types) == kActivations);
  u32 index = 0;
  ((table.gated[index] = gated<Types>, table.ungated[index++] = ungated<Types>), ...);
}

static KernelTable make_table() {
  KernelTable table = {};
  table.tile_rows = kTileRows;
  table.attention_rows = kAttentionRows;
  add_quantized<Q4_0, PackedType::kQ4_0>(table);
  add_quantized<Q4_1, PackedType::kQ4_1>(table);
  add_quantized<Q5_0, PackedType::kQ5_0>(table);
  add_quantized<Q5_1, PackedType::kQ5_1>(table);
  add_quantized<Q8_0, PackedType::kQ8_0>(table);
  add_quantized<IQ4_NL, PackedType::kIQ4_NL>(table);
  add_quantized<MXFP4, PackedType::kMXFP4>(table);
  add_products_of_256_columns(table);
  fill_float<F32, kTileRows>(table.product[static_cast<int>(PackedType::kF32)]);
  fill_float<F16, kTileRows>(table.product[static_cast<int>(PackedType::kF16)]);
  fill_float<BF16, kTileRows>(table.product[static_cast<int>(PackedType::kBF16)]);
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.quantize = quantize;
  fill_activations<Silu, Gelu, GeluTanh, Relu, ClampedSwiglu>(table);
  table.softcap = softcap;
  table.add = add_values;
  table.rope = rope;
  table.place_rows = place_rows;
  table.add_weighted_rows = add_weighted_rows;
  table.scale = scale;
  table.f16 = {store_key, store_value, turn_keys, attention_partial<>};
  table.q8 = {store_key_q8, store_value_q8, turn_keys_q8, attention_partial_q8<>};
  table.attention_merge = attention_merge;
  table.attention_sink = attention_sink;
  table.attention_finish = attention_finish;
  table.exp2 = exp2_values;
  table.tanh = tanh_values;
  table.erf = erf_values;
  table.f16_to_f32 = f16_to_f32_values;
  table.f32_to_f16 = f32_to_f16_values;
  return table;
}

}  // namespace loci::cpu::LOCI_KERNELS
