// SPDX-License-Identifier: Apache-2.0
// gpu-bench [--quick] [--device N] [FILTER ...]: measures this GPU, then Loci on it, and writes one
// table, a row as it is measured. A filter is the begin of rows' names. Exit status: 0 where every bar is
// met, 1 where one is missed, 2 where there is nothing to measure on.
#include <charconv>
#include <cstdio>
#include <string_view>

#include "loci/compute/cuda/check/bench.h"

namespace loci::cuda {
namespace {

struct Benchmark {
  const char* name;  // its rows' names begin so
  void (*run)(Bench&);
};

constexpr Benchmark kBenchmarks[] = {
    {"attention/", bench_attention}, {"models/", bench_models},   {"movement/", bench_movement},
    {"products/", bench_products},   {"restore/", bench_restore}, {"rows/", bench_rows},
};

int usage() {
  std::fputs("usage: gpu-bench [--quick] [--device N] [FILTER ...]\n", stderr);
  return 2;
}

int run(int count, char** arguments) {
  BenchOptions options;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--device" && i + 1 < count) {
      const std::string_view number = arguments[++i];
      const auto [end, error] =
          std::from_chars(number.data(), number.data() + number.size(), options.ordinal);
      if (error != std::errc() || end != number.data() + number.size()) return usage();
    } else if (argument.starts_with("-")) {
      return usage();
    } else {
      options.filters.emplace_back(argument);
    }
  }
  const Result<std::unique_ptr<Bench>> made = Bench::make(std::move(options));
  if (!made.ok()) {
    std::fprintf(stderr, "gpu-bench: %s\n", made.status().message().c_str());
    return 2;
  }
  Bench& bench = **made;
  for (const Benchmark& benchmark : kBenchmarks) {
    if (!bench.wanted(benchmark.name)) continue;
    std::fprintf(stderr, "%s...\n", benchmark.name);
    benchmark.run(bench);
    if (bench.device().lost()) {
      bench.table().fail(benchmark.name, bench.device().status());
      break;
    }
  }
  bench.table().end();
  return bench.table().failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace loci::cuda

int main(int count, char** arguments) { return loci::cuda::run(count, arguments); }
