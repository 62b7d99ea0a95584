// SPDX-License-Identifier: Apache-2.0
// Row kernels that accompany products: bias.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/products.h"

namespace loci::cuda {

// Sets output[row][o] = bias[o], or adds it if `mode` is kAdded. A library's product is then added to the
// output.
struct BiasArguments {
  void* output = nullptr;  // [rows][stride], elements or f32 as `mode` says
  std::uint32_t stride = 0;
  std::uint32_t rows = 0;
  std::uint32_t outputs = 0;
  const float* bias = nullptr;  // [outputs]
  ProductOutput mode = ProductOutput::kElements;
  ElementType type = ElementType::kBFloat16;
};
void place_bias(const BiasArguments& arguments, Stream& stream);

}  // namespace loci::cuda
