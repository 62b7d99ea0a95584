// SPDX-License-Identifier: Apache-2.0
// Products in the shapes of a Llama-8B, compared with the device's limits: one row with copying memory, many
// rows with the roofline; Loci's own kernels with cuBLASLt.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/cuda/check/bench.h"
#include "loci/compute/cuda/check/bench_model_testing.h"
#include "loci/compute/cuda/products/matrix.h"
#include "loci/compute/cuda/products/products.h"

namespace loci::cuda {
namespace {

struct ProductShape {
  const char* name;
  std::uint32_t outputs, columns;
};
constexpr ProductShape kShapes[] = {{"query, key, value", 6144, 4096},
                                    {"attention output", 4096, 4096},
                                    {"gate, up", 28672, 4096},
                                    {"down", 4096, 14336},
                                    {"logits", 128256, 4096}};
constexpr ProductShape kSmallShape = {"small", 192, 256};

struct WeightKind {
  TensorType stored;
  ElementType element;
};
constexpr WeightKind kKinds[] = {
    {TensorType::kBF16, ElementType::kBFloat16}, {TensorType::kQ8_0, ElementType::kHalf},
    {TensorType::kQ4_0, ElementType::kHalf},     {TensorType::kQ4_1, ElementType::kHalf},
    {TensorType::kQ4_K, ElementType::kHalf},     {TensorType::kQ6_K, ElementType::kHalf}};

DeviceMatrix random_matrix(const Bench& bench, const WeightKind& kind, const ProductShape& shape) {
  if (kind.stored == TensorType::kBF16) {
    return matrix_of_elements(
        kind.element, shape.outputs, shape.columns,
        bench.random_values(std::uint64_t{shape.outputs} * shape.columns, kind.element, 1));
  }
  const std::vector<std::byte> bytes =
      random_weights(kind.stored, std::uint64_t{shape.outputs} * shape.columns);
  const TensorView tensor{shape.name, kind.stored, shape.outputs, shape.columns, bytes.data()};
  Result<std::unique_ptr<MatrixLoader>> loader = MatrixLoader::make(bench.device(), kind.element, 8);
  LOCI_CHECK(loader.ok(), "benchmarks ask for what fits");
  Result<DeviceMatrix> matrix = loader.value()->load(tensor);
  LOCI_CHECK(matrix.ok() && loader.value()->finish().ok(), "benchmarks ask for what fits");
  return std::move(matrix).value();
}

class ProductBench {
 public:
  ProductBench(Bench& bench, Products& products, const DeviceMatrix& matrix, ElementType type,
               std::uint32_t rows)
      : bench_(bench),
        products_(products),
        matrix_(matrix),
        rows_(rows),
        input_(bench.random_values(std::uint64_t{rows} * matrix.columns, type, 2)),
        output_(bench.memory(MemoryKind::kDevice, std::uint64_t{rows} * matrix.rows * 2)) {}

  double milliseconds() const {
    ProductArguments arguments;
    arguments.matrix = &matrix_;
    arguments.input = input_.data();
    arguments.input_stride = matrix_.columns;
    arguments.rows = rows_;
    arguments.output = output_.data();
    arguments.output_stride = matrix_.rows;
    return bench_.measure_ms([&](Stream& stream) { products_.multiply(arguments, stream); });
  }
  // Read and written once each.
  double bytes() const { return static_cast<double>(matrix_.size_bytes() + input_.size() + output_.size()); }
  double operations() const { return 2.0 * rows_ * matrix_.rows * matrix_.columns; }

 private:
  Bench& bench_;
  Products& products_;
  const DeviceMatrix& matrix_;
  const std::uint32_t rows_;
  const Memory input_, output_;
};

std::string kind_name(const WeightKind& kind) {
  return std::string(kind.stored == TensorType::kBF16 ? "bf16" : tensor_type_info(kind.stored).name);
}

// What the device could do at best, in TFLOP/s: as fast as its memory or its tensor cores, whichever ends
// later.
double roofline(const Bench& bench, const ProductBench& product) {
  const double memory_ms = product.bytes() / bench.limits().copy_gbps / 1e6;
  const double matrix_ms = product.operations() / bench.limits().matrix_tflops / 1e9;
  return product.operations() / std::max(memory_ms, matrix_ms) / 1e9;
}

void bench_matrix(Bench& bench, const WeightKind& kind, const ProductShape& shape, Products& plain,
                  Products& own) {
  const std::string begin = fmt::format("products/{} {}", kind_name(kind), shape.name);
  if (!bench.wanted(begin)) return;
  const DeviceMatrix matrix = random_matrix(bench, kind, shape);
  // Small matrices end before the memory is at its rate; the small shape asks for nothing.
  const bool large = matrix.size_bytes() >= std::uint64_t{200'000'000};
  {
    const ProductBench one(bench, plain, matrix, kind.element, 1);
    bench.table().add({.name = begin + ", 1 row",
                       .measured = one.bytes() / one.milliseconds() / 1e6,
                       .unit = "GB/s",
                       .limit = bench.limits().copy_gbps,
                       .bar = large ? 0.9 : 0,
                       .note = fmt::format("{} x {}", shape.outputs, shape.columns)});
  }
  if (std::strcmp(shape.name, "gate, up") != 0 && std::strcmp(shape.name, "down") != 0 && !bench.small())
    return;
  std::vector<std::uint32_t> counts = {8, 16, 32, 64, 128, 256, 512, 2048};
  if (bench.quick()) counts = {16, 32, 64, 128, 256, 512, 2048};
  if (bench.small()) counts = {40};
  for (const std::uint32_t rows : counts) {
    const auto measure = [&](Products& products, const char* whose, double bar) {
      const ProductBench product(bench, products, matrix, kind.element, rows);
      bench.table().add({.name = fmt::format("{}, {} rows{}", begin, rows, whose),
                         .measured = product.operations() / product.milliseconds() / 1e9,
                         .unit = "TFLOP/s",
                         .limit = roofline(bench, product),
                         .bar = bench.small() ? 0 : bar,
                         .note = "min(memory, matrix rate)"});
    };
    const bool elements = kind.stored == TensorType::kBF16;
    measure(plain, "", elements && rows >= 64 ? 0.7 : 0);
    if (elements && rows > 32) measure(own, ", own kernels", 0);
  }
}

}  // namespace

void bench_products(Bench& bench) {
  if (!bench.wanted("products/")) return;
  constexpr std::uint32_t kRowsMax = 2048;
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kHalf}) {
    auto plain = Products::make(bench.device(), type, false, kRowsMax);
    auto own = Products::make(bench.device(), type, true, kRowsMax);
    if (!plain.ok() || !own.ok()) {
      bench.table().fail("products/workspace", plain.ok() ? own.status() : plain.status());
      return;
    }
    for (const WeightKind& kind : kKinds) {
      if (kind.element != type) continue;
      if (bench.small()) {
        bench.attempt("products/small", [&] { bench_matrix(bench, kind, kSmallShape, **plain, **own); });
        continue;
      }
      for (const ProductShape& shape : kShapes) {
        bench.attempt(fmt::format("products/{} {}", kind_name(kind), shape.name),
                      [&] { bench_matrix(bench, kind, shape, **plain, **own); });
      }
    }
  }
}

}  // namespace loci::cuda
