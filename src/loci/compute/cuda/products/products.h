// SPDX-License-Identifier: Apache-2.0
// Products of activations with a model's matrices: out[row][o] = sum over i of in[row][i] * matrix[o][i].
//
// Inputs are elements, sums are float32; packed weights are decoded to elements inside the kernels (matrix.h,
// fragments.h). Products of 16-bit matrices with many rows go to cuBLASLt if the machine has it. Loci's own
// kernels compute products of quantised matrices, of few rows, of mixtures, and everything in deterministic
// mode.
//
// Determinism: the same shape gives the same bits. With Loci's own kernels a row's bits depend only on that
// row and the matrix (product_kernels.h), so deterministic mode simply does not use cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/matrix.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

enum class ProductOutput : std::uint8_t {
  // Stored as the element type. Own kernels store f16 values that are too large as the largest one; the
  // library stores them as infinite. So readers take infinite values for the largest: load_product() of
  // rows/elements.h.
  kElements,
  kFloats,  // stored as f32
  kAdded,   // added to f32
};

// Pointers are to device memory.
struct ProductArguments {
  const DeviceMatrix* matrix = nullptr;
  const void* input = nullptr;     // elements [rows][input_stride], aligned to 16 bytes
  std::uint32_t input_stride = 0;  // elements; a multiple of 8
  std::uint32_t rows = 0;
  void* output = nullptr;  // [rows][output_stride]
  std::uint32_t output_stride = 0;
  ProductOutput mode = ProductOutput::kElements;
  const float* bias = nullptr;  // [outputs] or null
  // Only outputs [first_output, first_output + outputs) of the matrix; 0: all from the first one on. Of a
  // packed part they begin at a multiple of 16. Column 0 of the output is the first one. Not in a mixture.
  std::uint32_t first_output = 0;
  std::uint32_t outputs = 0;
};

// Products of one device. Thread-compatible; one stream at a time, because it has one workspace. May be
// captured.
class Products {
 public:
  // Without the library cuBLASLt, Loci's own kernels compute everything. `rows_max`: the most rows of any
  // product. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Products>> make(const Device& device, ElementType type, bool deterministic,
                                                std::uint32_t rows_max);
  virtual ~Products() = default;
  virtual void multiply(const ProductArguments& arguments, Stream& stream) = 0;
  // Products of a mixture: rows [offsets[e], offsets[e + 1]) are multiplied with expert e's rows of the
  // matrix, which was loaded for `experts` experts. `offsets` [experts + 1] is in device memory; the host
  // knows only its last value, arguments.rows. `bias` is [experts][outputs].
  virtual void multiply_experts(const ProductArguments& arguments, const std::uint32_t* offsets,
                                std::uint32_t experts, Stream& stream) = 0;
  // The library's name and version, or why there is none.
  virtual const std::string& library() const = 0;
};

struct EmbedArguments {
  const DeviceMatrix* embedding = nullptr;
  const DeviceMatrix* positions = nullptr;       // learned position rows to add, or null
  const std::uint32_t* tokens = nullptr;         // [rows]
  const std::uint32_t* row_positions = nullptr;  // [rows], offset included
  std::uint32_t rows = 0;
  float scale = 1;
  float* output = nullptr;  // f32 [rows][columns]
};
// output[row] = embedding[token] * scale + positions[position], decoded exactly. The embedding may be the
// tied output matrix.
void embed(const EmbedArguments& arguments, Stream& stream);

}  // namespace loci::cuda
