// SPDX-License-Identifier: Apache-2.0
// A model's matrix in device memory, and loading it from a model's file.
//
// Formats. F16 and BF16 tensors of the element type are held as they are, row-major. Quantised tensors whose
// scales are f16 keep their bits in tiles of 16 rows, in the order in which a warp multiplies them
// (packed_layout.h): Q8_0, Q4_0, Q4_1, Q4_K, Q6_K; Q5_0 and IQ4_NL as Q8_0, whose values hold theirs exactly.
// Everything else is decoded and rounded to the element type at load.
//
// Limits, checked at load with an error that names the tensor: columns are a multiple of 8 and of the type's
// blocks; in a mixture each expert's rows of a quantised tensor are a multiple of 16.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/matrix_format.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/model/model_spec.h"
#include "loci/model/tensor.h"

namespace loci::cuda {

// The format in which a tensor of `type` is held if elements are `element`.
MatrixFormat format_of(TensorType type, ElementType element);

// The element type that serves a model best: BF16 if it has BF16 or MXFP4 matrices, whose values may lie
// outside of f16's range. Else f16: it holds F16 weights exactly, has three bits more for activations and
// state, and multiplies quantised values by their f16 scales in one operation with one rounding.
ElementType best_element_type(const ModelSpec& spec);

// Rows of one format. Row i of expert e is output `first_output + i` of that expert.
struct MatrixPart {
  MatrixFormat format = MatrixFormat::kBFloat16;
  std::uint32_t first_output = 0;
  std::uint32_t outputs = 0;      // of each expert
  std::uint64_t data_offset = 0;  // of the part's bytes in DeviceMatrix::data
  std::uint64_t data_bytes = 0;   // [experts * outputs rows]; packed: in tiles of 16 rows
};

// [rows = outputs][columns = inputs]; several tensors of one width may be stacked (query, key, value).
// Stacked tensors of different formats are separate parts. In a mixture expert e has rows [e * outputs, (e +
// 1) * outputs): its rows of each stacked tensor, in their order.
struct DeviceMatrix {
  std::uint32_t rows = 0;  // of all experts
  std::uint32_t columns = 0;
  std::uint32_t experts = 1;
  std::vector<MatrixPart> parts;
  Memory data;
  std::string name;  // names of its tensors, for errors
  std::uint32_t outputs() const { return rows / experts; }
  std::uint64_t size_bytes() const { return data.size(); }
  bool present() const { return rows > 0; }
};

// A matrix of elements that are already in device memory.
DeviceMatrix matrix_of_elements(ElementType element, std::uint32_t rows, std::uint32_t columns, Memory data);

// Makes matrices of one device. Thread-compatible. Packs with `threads` threads into one half of a pinned
// buffer, while the other half is copied to the device.
class MatrixLoader {
 public:
  static constexpr std::uint64_t kStagingBytes = std::uint64_t{64} << 20;
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<MatrixLoader>> make(const Device& device, ElementType element,
                                                    unsigned threads,
                                                    std::uint64_t staging_bytes = kStagingBytes);

  // Returns when the copy of the last bytes has been queued; finish() waits for it. Errors: kInvalidArgument
  // naming the tensor; kResourceExhausted.
  Result<DeviceMatrix> load(const TensorView& tensor) { return load({&tensor, 1}, 1); }
  Result<DeviceMatrix> load(std::span<const TensorView> stacked, std::uint32_t experts);
  // Waits until all bytes are in device memory. Errors: the device's.
  Status finish();

 private:
  MatrixLoader(const Device& device, ElementType element, unsigned threads, Memory staging);
  Status upload(const DeviceMatrix& matrix, const MatrixPart& part, std::span<const TensorView> stacked);

  const Device& device_;
  const ElementType element_;
  const unsigned threads_;
  Memory staging_;  // two halves
  Stream stream_;
  Event done_[2];  // when the half has been copied
  unsigned half_ = 0;
};

}  // namespace loci::cuda
