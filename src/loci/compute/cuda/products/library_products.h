// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit matrices by the library cuBLASLt, if the machine has it. There are two implementations,
// chosen at link time like those of the runtime: cublas_lt.cc, and simulated_library.cc, a plain product on
// the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/products.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

struct LibraryProduct {
  const void* weights = nullptr;  // elements [outputs][columns]
  std::uint32_t outputs = 0;
  std::uint32_t columns = 0;
  const void* input = nullptr;  // elements [rows][input_stride]
  std::uint32_t input_stride = 0;
  std::uint32_t rows = 0;
  void* output = nullptr;  // [rows][output_stride] of f32, or elements
  std::uint32_t output_stride = 0;
  bool floats = false;  // the output is f32
  bool added = false;   // the product is added to the output; else it replaces it
};

// Thread-compatible; one stream at a time.
class LibraryProducts {
 public:
  // Null: there is no library, and `about` says what was tried. Else `about` has its name and version.
  // Allocates its workspace.
  static std::unique_ptr<LibraryProducts> open(const Device& device, ElementType type, std::string& about);
  virtual ~LibraryProducts() = default;
  // False: the library has no kernel for the product.
  virtual bool serves(const LibraryProduct& product) = 0;
  // Queues a product that serves() accepts. May be captured. Errors: kInternal, with the library's status.
  // The output then holds anything; whether the device is lost, its next operation says.
  [[nodiscard]] virtual Status multiply(const LibraryProduct& product, Stream& stream) = 0;
};

}  // namespace loci::cuda
