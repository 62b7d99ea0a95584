// SPDX-License-Identifier: Apache-2.0
// Products of activations with a model's matrices: out[row][o] = sum over i of in[row][i] * matrix[o][i].
//
// Inputs are elements, sums are float32; packed weights are decoded to elements on their way (matrix.h,
// fragments.h). Products of 16-bit matrices with many rows go to cuBLASLt where it is there; own kernels take
// the quantised ones, few rows, mixtures, and all of deterministic mode.
//
// Determinism: same shape, same bits. Of own kernels also: a row's bits depend on that row and the matrix
// alone (product_kernels.h), so deterministic mode is cuBLASLt left alone.
#pragma once

#include <cstdint>
#include <memory>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/matrix.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

enum class ProductOutput : std::uint8_t {
  kElements,  // stored as the element type; f16 ones that are too large as the largest
  kFloats,    // stored as f32
  kAdded,     // added to f32
};

// Pointers are of the device.
struct ProductArguments {
  const DeviceMatrix* matrix = nullptr;
  const void* input = nullptr;     // elements [rows][input_stride], aligned to 16 bytes
  std::uint32_t input_stride = 0;  // elements; a multiple of 8
  std::uint32_t rows = 0;
  void* output = nullptr;  // [rows][output_stride]
  std::uint32_t output_stride = 0;
  ProductOutput mode = ProductOutput::kElements;
  const float* bias = nullptr;  // [outputs] or null
};

// Products of one device. Thread-compatible; one stream at a time (its workspace is one). May be captured.
class Products {
 public:
  // Without cuBLASLt's library own kernels do all. `rows_max`: of any product. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Products>> make(const Device& device, ElementType type, bool deterministic,
                                                std::uint32_t rows_max);
  virtual ~Products() = default;
  virtual void multiply(const ProductArguments& arguments, Stream& stream) = 0;
  // Of a mixture: rows [offsets[e], offsets[e + 1]) are multiplied with expert e's rows of the matrix
  // (`experts` of them, as the matrix was loaded). `offsets` [experts + 1] is on the device, as is what it
  // says; the host knows their last one, arguments.rows. `bias` is [experts][outputs].
  virtual void multiply_experts(const ProductArguments& arguments, const std::uint32_t* offsets,
                                std::uint32_t experts, Stream& stream) = 0;
  // The library's name and version, or why there is none.
  virtual const std::string& library() const = 0;
};

struct EmbedArguments {
  const DeviceMatrix* embedding = nullptr;
  const DeviceMatrix* positions = nullptr;       // or null: a learned row is added
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
