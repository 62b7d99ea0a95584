// SPDX-License-Identifier: Apache-2.0
// The speed of each product kernel with its weights in the first-level cache, which limits a batch of that
// many rows; and with weights from memory ("MEMORY", 88 MiB of them), which limits decode. Items are
// multiplications and additions; bytes are the weights'. And how fast weights are packed.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/packed_matrix.h"
#include "loci/model/tensor.h"

namespace loci::cpu {
namespace {

constexpr const char* kTypeNames[kPackedTypes] = {"Q4_0",   "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL",
                                                  "MXFP4",  "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
                                                  "IQ4_XS", "F32",  "F16",  "BF16"};

void run_product(benchmark::State& state, InstructionSet set, std::uint32_t type, std::uint32_t rows) {
  const bool quantized = type < static_cast<std::uint32_t>(PackedType::kF32);
  const std::uint32_t columns = quantized ? 512 : 128;
  const std::uint32_t steps = columns / kPackedStepColumns[type];
  const std::uint64_t weight_bytes = std::uint64_t{steps} * kPackedStepBytes[type];
  const std::vector<std::uint8_t> weights(weight_bytes + 4096),
      tile(std::size_t{columns} * rows * sizeof(float) + 64);
  std::vector<float> out(kMaxTileRows * kLanes);
  const ProductKernel kernel = kernels_of(set).product[type][rows - 1];
  for (auto _ : state) {
    kernel(weights.data(), tile.data(), steps, out.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const auto rounds = static_cast<std::int64_t>(state.iterations());
  state.SetItemsProcessed(rounds * 2 * kLanes * columns * rows);
  state.SetBytesProcessed(rounds * static_cast<std::int64_t>(weight_bytes));
}

// Some rows times groups of 576 columns (512 of the K types), one after the other.
void run_from_memory(benchmark::State& state, InstructionSet set, PackedType packed, std::uint32_t rows) {
  constexpr std::uint32_t kColumns = 576;
  constexpr std::uint64_t kBytes = std::uint64_t{88} << 20;
  const auto type = static_cast<std::uint32_t>(packed);
  const std::uint32_t steps = kColumns / kPackedStepColumns[type];
  const std::uint64_t group_bytes = std::uint64_t{steps} * kPackedStepBytes[type];
  Buffer weights;
  weights.reserve(kBytes, "a benchmark");
  std::memset(weights.data(), 1, weights.size());
  const std::vector<std::uint8_t> tile(std::size_t{kColumns} * rows * sizeof(float));
  std::vector<float> out(kMaxTileRows * kLanes);
  const ProductKernel kernel = kernels_of(set).product[type][rows - 1];
  for (auto _ : state) {
    for (std::uint64_t at = 0; at + group_bytes <= kBytes; at += group_bytes) {
      kernel(weights.data() + at, tile.data(), steps, out.data());
      benchmark::ClobberMemory();
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kBytes));
}

// Packing one group of 16 rows; bytes are the file's.
void run_pack(benchmark::State& state, TensorType type) {
  constexpr std::uint32_t kColumns = 2048;
  TensorView tensor{"t", type, kLanes, kColumns, nullptr};
  const std::vector<std::byte> bytes(tensor.size_bytes());
  tensor.data = bytes.data();
  PackedMatrix matrix = *describe_packed(tensor);
  std::vector<std::uint8_t> packed(matrix.size_bytes());
  matrix.data = packed.data();
  for (auto _ : state) {
    pack_group(tensor, matrix, 0);
    benchmark::ClobberMemory();
  }
  const auto rounds = static_cast<std::int64_t>(state.iterations());
  state.SetItemsProcessed(rounds * kLanes * kColumns);
  state.SetBytesProcessed(rounds * static_cast<std::int64_t>(tensor.size_bytes()));
}

}  // namespace
}  // namespace loci::cpu

int main(int count, char** arguments) {
  using namespace loci;
  using namespace loci::cpu;
  for (const InstructionSet set : available_instruction_sets()) {
    for (const PackedType type : {PackedType::kQ4_0, PackedType::kQ4_1, PackedType::kQ8_0, PackedType::kQ4_K,
                                  PackedType::kQ6_K, PackedType::kF16}) {
      for (const std::uint32_t rows : {1u, 4u, kernels_of(set).tile_rows}) {
        const std::string name = std::string(instruction_set_name(set)) + "/" +
                                 kTypeNames[static_cast<std::uint32_t>(type)] + "/" + std::to_string(rows) +
                                 "/MEMORY";
        benchmark::RegisterBenchmark(
            name.c_str(), [=](benchmark::State& state) { run_from_memory(state, set, type, rows); });
      }
    }
    for (std::uint32_t type = 0; type < kPackedTypes; ++type) {
      for (const std::uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 8u, 12u}) {
        if (rows > kernels_of(set).tile_rows) continue;
        const std::string name =
            std::string(instruction_set_name(set)) + "/" + kTypeNames[type] + "/" + std::to_string(rows);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { run_product(state, set, type, rows); });
      }
    }
  }
  for (const TensorTypeInfo& info : supported_tensor_types()) {
    const TensorType type = info.type;
    const std::string name = "pack/" + std::string(info.name);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run_pack(state, type); });
  }
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
