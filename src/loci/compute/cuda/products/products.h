// Products of activations with a model's matrices: out[row][o] = sum over i of in[row][i] * matrix[o][i].
//
// Matrices are held as they were in the file where a kernel serves their type (F16 and BF16 as they are;
// Q8_0, Q4_0, Q4_K and others in a layout of their own: matrix.h), else as the element type. Large products
// of 16-bit matrices go to cuBLASLt where it is there; own kernels take the quantised ones, one or few rows,
// and all of deterministic mode.
//
// Determinism: same shape, same bits. In deterministic mode each output element is accumulated in one order
// that depends on the matrix alone, never on the number of rows.
#pragma once

#include <cstdint>
#include <memory>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/matrix.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

enum class ProductOutput : std::uint8_t {
  kElements,  // stored as the element type
  kFloats,    // stored as f32
  kAdded,     // added to f32
};

// Pointers are of the device.
struct ProductArguments {
  const DeviceMatrix* matrix = nullptr;
  const void* input = nullptr;     // element type [rows][input_stride]
  std::uint32_t input_stride = 0;  // elements; a multiple of 8
  std::uint32_t rows = 0;
  void* output = nullptr;  // [rows][output_stride]
  std::uint32_t output_stride = 0;
  ProductOutput mode = ProductOutput::kElements;
  const float* bias = nullptr;  // [outputs] or null
};

// Products of one device. Thread-compatible; one stream at a time (its workspace is one).
class Products {
 public:
  // Without cuBLASLt's library (why() says what was tried) own kernels do all. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Products>> make(const Device& device, ElementType type, bool deterministic,
                                                std::uint32_t rows_max);
  virtual ~Products() = default;
  virtual void multiply(const ProductArguments& arguments, Stream& stream) = 0;
  // Of a mixture: rows [offsets[e], offsets[e + 1]) are multiplied with expert e's rows of the matrix, [e *
  // outputs_each, (e + 1) * outputs_each). `offsets` [experts + 1] is on the device, as is what it says.
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
void embed(const EmbedArguments& arguments, Stream& stream);

}  // namespace loci::cuda
