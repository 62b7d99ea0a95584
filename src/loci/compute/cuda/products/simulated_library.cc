// SPDX-License-Identifier: Apache-2.0
// The simulated device's stand-in for cuBLASLt, so that tests see who gets which product.
#include <cstring>

#include "loci/base/mutex.h"
#include "loci/compute/cuda/products/library_products.h"
#include "loci/compute/cuda/simulated/world.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cuda {
namespace {

struct HostProduct {
  LibraryProduct product;
  ElementType type;

  float element(const void* from, std::uint64_t index) const {
    std::uint16_t bits;
    std::memcpy(&bits, static_cast<const std::byte*>(from) + 2 * index, sizeof(bits));
    return type == ElementType::kHalf ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  void run() const {
    const LibraryProduct& p = product;
    for (std::uint64_t row = 0; row < p.rows; ++row) {
      for (std::uint64_t o = 0; o < p.outputs; ++o) {
        const std::uint64_t at = row * p.output_stride + o;
        float sum = 0;
        for (std::uint64_t i = 0; i < p.columns; ++i) {
          sum += element(p.input, row * p.input_stride + i) * element(p.weights, o * p.columns + i);
        }
        if (p.floats) {
          float& to = static_cast<float*>(p.output)[at];
          to = p.added ? to + sum : sum;
          continue;
        }
        if (p.added) sum += element(p.output, at);
        static_cast<std::uint16_t*>(p.output)[at] =
            type == ElementType::kHalf ? f32_to_f16(sum) : f32_to_bf16(sum);
      }
    }
  }
};

class SimulatedLibrary : public LibraryProducts {
 public:
  explicit SimulatedLibrary(ElementType type) : type_(type) {}
  // As the real one, it leaves some shapes to others.
  bool serves(const LibraryProduct& product) override { return product.outputs % 8 == 0; }
  Status multiply(const LibraryProduct& product, Stream& stream) override {
    {
      simulated::World& w = simulated::world();
      const MutexLock lock(w.mutex);
      std::uint64_t& failing = w.options.library_failures;
      if (failing > 0) {
        --failing;
        return internal_error("the simulated library failed a product: a simulated fault");
      }
    }
    stream.call([](void* of) { static_cast<const HostProduct*>(of)->run(); },
                std::make_shared<HostProduct>(HostProduct{product, type_}));
    return {};
  }

 private:
  const ElementType type_;
};

}  // namespace

std::unique_ptr<LibraryProducts> LibraryProducts::open(const Device&, ElementType type, std::string& about) {
  about = "a simulated library";
  return std::make_unique<SimulatedLibrary>(type);
}

}  // namespace loci::cuda
