// SPDX-License-Identifier: Apache-2.0
// All kernels of one instruction set but products (products.inl, products_k.inl); see simd.h for what the
// including file defines.
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

#include "loci/compute/cpu/elementwise.inl"

#include "loci/compute/cpu/state_f16.inl"

#include "loci/compute/cpu/state_q8.inl"

#include "loci/compute/cpu/attention.inl"

#include "loci/compute/cpu/attention_q8.inl"

// products_*.cc
void add_products(KernelTable& table);
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
  table.wide_attention_rows = kWideAttentionRows;
  add_products(table);
  add_products_of_256_columns(table);
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.quantize = quantize;
  table.quantize_rows = quantize_rows;
  fill_activations<Silu, Gelu, GeluTanh, Relu, ClampedSwiglu>(table);
  table.softcap = softcap;
  table.add = add_values;
  table.rope = rope;
  table.place_rows = place_rows;
  table.add_weighted_rows = add_weighted_rows;
  table.scale = scale;
  table.f16 = {store_key, store_value, turn_keys, attention_partial<>, widen};
  table.q8 = {store_key_q8, store_value_q8, turn_keys_q8, attention_partial_q8<>, nullptr};
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
