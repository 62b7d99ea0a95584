// SPDX-License-Identifier: Apache-2.0
// The kernels between products, compared with a plain copy: each reads and writes its rows once. Sampling
// reads the logits once, and again if tokens are cut off; its figures are reported without a limit.
#include <fmt/format.h>

#include <cstring>
#include <span>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/cuda/check/bench.h"
#include "loci/compute/cuda/rows/rows.h"

namespace loci::cuda {
namespace {

constexpr ElementType kType = ElementType::kBFloat16;
constexpr double kCopyBar = 0.85;  // of a copy's bandwidth, where a launch moves 256 MB or more
constexpr double kLargeBytes = 256e6;

template <class T>
Memory to_device(Bench& bench, const std::vector<T>& values) {
  const std::uint64_t bytes = values.size() * sizeof(T);
  const Memory host = bench.memory(MemoryKind::kPinned, bytes);
  Memory memory = bench.memory(MemoryKind::kDevice, bytes);
  std::memcpy(host.data(), values.data(), bytes);
  bench.stream().copy(memory.data(), host.data(), bytes);
  bench.stream().synchronize();
  return memory;
}
// Normal float32 values: each one's upper half is such a bf16.
Memory random_floats(Bench& bench, std::uint64_t count, std::uint64_t seed) {
  return bench.random_values(2 * count, kType, seed);
}

void tell_bandwidth(Bench& bench, std::string name, double bytes, double ms) {
  bench.table().add({.name = std::move(name),
                     .measured = bytes / ms / 1e6,
                     .unit = "GB/s",
                     .limit = bench.limits().copy_gbps,
                     .bar = bytes >= kLargeBytes ? kCopyBar : 0,
                     .note = fmt::format("{:.1f} us, beside a copy", ms * 1e3)});
}

void bench_add_norm(Bench& bench, std::uint32_t rows, std::uint32_t width) {
  const std::uint64_t count = std::uint64_t{rows} * width;
  const Memory residual = random_floats(bench, count, 1), change = random_floats(bench, count, 2),
               weight = random_floats(bench, width, 3), output = bench.memory(MemoryKind::kDevice, count * 2);
  AddNormArguments arguments{.residual = residual.as<float>(), .change = change.as<float>()};
  arguments.norm = {.weight = weight.as<float>(), .epsilon = 1e-5f};
  arguments.output = output.data();
  arguments.rows = rows;
  arguments.width = width;
  arguments.type = kType;
  const double ms = bench.measure_ms([&](Stream& stream) { add_norm(arguments, stream); });
  tell_bandwidth(bench, fmt::format("rows/add and norm {} x {}", rows, width),
                 static_cast<double>(count) * (3 * sizeof(float) + 2), ms);
}

void bench_activate(Bench& bench, std::uint32_t rows, std::uint32_t width) {
  const std::uint64_t count = std::uint64_t{rows} * width;
  const Memory input = bench.random_values(2 * count, kType, 4),
               output = bench.memory(MemoryKind::kDevice, count * 2);
  const ActivateArguments arguments{
      .input = input.data(), .output = output.data(), .rows = rows, .width = width, .type = kType};
  const double ms = bench.measure_ms([&](Stream& stream) { activate(arguments, stream); });
  tell_bandwidth(bench, fmt::format("rows/activate {} x {}", rows, width), static_cast<double>(count) * 6,
                 ms);
}

void bench_place_rows(Bench& bench, std::uint32_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                      std::uint32_t head_dim) {
  const std::uint32_t units = heads + 2 * kv_heads;
  const std::uint64_t count = std::uint64_t{rows} * units * head_dim;
  const std::uint32_t slots = (rows + 31) / 32;
  const std::uint64_t block_bytes = std::uint64_t{2} * kv_heads * head_dim * 32 * 2;
  const Memory qkv = bench.random_values(count, kType, 5),
               queries = bench.memory(MemoryKind::kDevice, std::uint64_t{rows} * heads * head_dim * 2),
               pool = bench.memory(MemoryKind::kDevice, slots * block_bytes),
               rope = random_floats(bench, std::uint64_t{rows} * head_dim, 6);
  std::vector<std::uint32_t> each(rows);
  for (std::uint32_t i = 0; i < rows; ++i) each[i] = i;
  const Memory numbers = to_device(bench, each);
  PlaceArguments arguments{.qkv = qkv.data(), .queries = queries.data()};
  arguments.state = {
      .base = pool.data(), .slot_stride = block_bytes, .kv_heads = kv_heads, .head_dim = head_dim};
  arguments.positions = arguments.places = numbers.as<std::uint32_t>();
  arguments.rope = rope.as<float2>();
  arguments.rope_dimensions = head_dim;
  arguments.rows = rows;
  arguments.heads = heads;
  arguments.type = kType;
  const double ms = bench.measure_ms([&](Stream& stream) { place_rows(arguments, stream); });
  tell_bandwidth(bench, fmt::format("rows/place {} rows of {} + 2 x {} heads", rows, heads, kv_heads),
                 static_cast<double>(count) * 4, ms);
}

struct SampleCase {
  const char* name;
  SampleRow row;
};

void bench_sample(Bench& bench, std::uint32_t rows, std::uint32_t vocabulary, const SampleCase& of) {
  const Memory logits = random_floats(bench, std::uint64_t{rows} * vocabulary, 7);
  std::vector<SampleRow> each(rows, of.row);
  for (std::uint32_t i = 0; i < rows; ++i) {
    each[i].logits_row = each[i].sample = i;
    each[i].uniform = sample_uniform(8, i);
  }
  const Memory parameters = to_device(bench, each),
               count = to_device(bench, std::vector<std::uint32_t>{rows}),
               samples = bench.memory(MemoryKind::kDevice, rows * sizeof(std::uint32_t)),
               workspace = bench.memory(MemoryKind::kDevice, sample_workspace_bytes(rows, vocabulary));
  const SampleArguments arguments{.logits = logits.as<float>(),
                                  .vocabulary = vocabulary,
                                  .rows = parameters.as<SampleRow>(),
                                  .count = count.as<std::uint32_t>(),
                                  .count_max = rows,
                                  .samples = samples.as<std::uint32_t>(),
                                  .workspace = workspace.data()};
  const double ms = bench.measure_ms([&](Stream& stream) { sample(arguments, stream); });
  tell_bandwidth(bench, fmt::format("rows/sample {} of {}, {}", rows, vocabulary, of.name),
                 static_cast<double>(rows) * vocabulary * sizeof(float), ms);
}

// The random logits' deviation is 0.6: a temperature of 0.15 makes of it what language models have at 1.
constexpr SampleCase kSampleCases[] = {
    {"greedy", {}},
    {"whole", {.temperature = 0.15f}},
    {"top-p 0.95", {.temperature = 0.15f, .top_p = 0.95f}},
    {"top-k 50, top-p 0.95", {.temperature = 0.15f, .top_k = 50, .top_p = 0.95f}},
    {"min-p 0.05", {.temperature = 0.15f, .min_p = 0.05f}},
    {"top-p 0.95 of a flat one", {.temperature = 2, .top_p = 0.95f}},
};

}  // namespace

void bench_rows(Bench& bench) {
  const bool small = bench.small();
  const std::vector<std::uint32_t> rows =
      small ? std::vector<std::uint32_t>{3} : std::vector<std::uint32_t>{1, 64, 512, 8192};
  for (const std::uint32_t count : rows) {
    if (bench.wanted("rows/add")) {
      bench.attempt("rows/add and norm", [&] { bench_add_norm(bench, count, small ? 64 : 4096); });
    }
    if (bench.wanted("rows/activate")) {
      bench.attempt("rows/activate", [&] { bench_activate(bench, count, small ? 64 : 14336); });
    }
    if (bench.wanted("rows/place")) {
      bench.attempt("rows/place",
                    [&] { bench_place_rows(bench, small ? count : 2 * count, small ? 2 : 32, 8, 128); });
    }
  }
  if (!bench.wanted("rows/sample")) return;
  for (const std::uint32_t count :
       small ? std::vector<std::uint32_t>{2} : std::vector<std::uint32_t>{1, 64}) {
    for (const SampleCase& of : kSampleCases) {
      bench.attempt(std::string("rows/sample ") + of.name,
                    [&] { bench_sample(bench, count, small ? 1000 : 128256, of); });
    }
  }
}

}  // namespace loci::cuda
