// SPDX-License-Identifier: Apache-2.0
// Measures the hardware's limits as simply as possible: one large copy, one large product.
#include <algorithm>
#include <utility>

#include "loci/compute/cuda/check/bench.h"
#include "loci/compute/cuda/products/products.h"

namespace loci::cuda {
namespace {

constexpr std::uint64_t kCopyBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kLinkBytes = std::uint64_t{256} << 20;
constexpr std::uint32_t kMatrixSide = 8192;
constexpr std::uint64_t kBytesSmall = 64 << 10;  // of the simulated device
constexpr std::uint32_t kMatrixSideSmall = 64;

double gbps(double bytes, double ms) { return bytes / ms / 1e6; }

Result<double> matrix_tflops(Bench& bench) {
  const std::uint32_t side = bench.small() ? kMatrixSideSmall : kMatrixSide;
  const std::uint64_t values = std::uint64_t{side} * side;
  const DeviceMatrix matrix = matrix_of_elements(ElementType::kBFloat16, side, side,
                                                 bench.random_values(values, ElementType::kBFloat16, 1));
  const Memory input = bench.random_values(values, ElementType::kBFloat16, 2);
  const Memory output = bench.memory(MemoryKind::kDevice, values * 2);
  LOCI_ASSIGN_OR_RETURN(const std::unique_ptr<Products> products,
                        Products::make(bench.device(), ElementType::kBFloat16, false, side));
  const ProductArguments arguments{.matrix = &matrix,
                                   .input = input.data(),
                                   .input_stride = side,
                                   .rows = side,
                                   .output = output.data(),
                                   .output_stride = side};
  const double ms = bench.measure_ms([&](Stream& stream) { products->multiply(arguments, stream); });
  constexpr const char* kName = "limits/dense 16-bit products";
  if (products->library().starts_with("own kernels") && !bench.small()) {
    bench.table().fail(kName, Status(StatusCode::kUnavailable,
                                     "shares of own kernels' rate would flatter: " + products->library()));
  } else {
    bench.table().add({.name = kName,
                       .measured = 2.0 * side * side * side / ms / 1e9,
                       .unit = "TFLOP/s",
                       .note = products->library()});
  }
  return 2.0 * side * side * side / ms / 1e9;
}

}  // namespace

Result<BenchLimits> measure_limits(Bench& bench) {
  BenchLimits limits;
  {
    const std::uint64_t bytes = bench.small() ? kBytesSmall : kCopyBytes;
    const Memory from = bench.memory(MemoryKind::kDevice, bytes),
                 to = bench.memory(MemoryKind::kDevice, bytes);
    const double ms = bench.measure_ms([&](Stream& stream) { stream.copy(to.data(), from.data(), bytes); });
    limits.copy_gbps = gbps(2.0 * static_cast<double>(bytes), ms);
  }
  {
    const std::uint64_t bytes = bench.small() ? kBytesSmall : kLinkBytes;
    const Memory host = bench.memory(MemoryKind::kPinned, bytes),
                 device = bench.memory(MemoryKind::kDevice, bytes);
    const auto rate = [&](const Memory& to, const Memory& from) {
      return gbps(static_cast<double>(bytes),
                  bench.measure_ms([&](Stream& stream) { stream.copy(to.data(), from.data(), bytes); }));
    };
    limits.to_device_gbps = rate(device, host);
    limits.to_host_gbps = rate(host, device);
  }
  BenchTable& table = bench.table();
  table.add({.name = "limits/copy in device memory",
             .measured = limits.copy_gbps,
             .unit = "GB/s",
             .note = bench.device().properties().name + ", bytes read and written"});
  table.add(
      {.name = "limits/host to device", .measured = limits.to_device_gbps, .unit = "GB/s", .note = "pinned"});
  table.add(
      {.name = "limits/device to host", .measured = limits.to_host_gbps, .unit = "GB/s", .note = "pinned"});
  LOCI_ASSIGN_OR_RETURN(limits.matrix_tflops, matrix_tflops(bench));
  return limits;
}

}  // namespace loci::cuda
