// SPDX-License-Identifier: Apache-2.0
// The frame of the benchmark program. It measures kernels, movement of state and whole models, and compares
// each figure with the hardware's limit, measured in the same run. bench_main.cc runs the benchmarks declared
// here and writes one table, each row as soon as it is measured.
//
//   void bench_rows(Bench& bench) {
//     const double ms = bench.measure_ms([&](Stream& stream) { rms_norm(arguments, stream); });
//     bench.table().add({.name = "rows/norm 4096", .measured = bytes / ms / 1e6, .unit = "GB/s",
//                        .limit = bench.limits().copy_gbps, .bar = 0.8, .note = "512 rows"});
//   }
//
// A benchmark allocates memory with Bench::memory() and asks wanted() before long measurements. It takes
// small shapes if small() is true: on the simulated device only the frame is tested, figures mean nothing,
// and no bar is judged. GB are 10^9 bytes. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

struct BenchRow {
  enum class Better : std::uint8_t { kHigher, kLower };
  std::string name;  // "attention/decode 8K batch 16"
  double measured = 0;
  std::string unit;  // "GB/s", "TFLOP/s", "ms"
  double limit = 0;  // in the same unit; 0: there is none
  double bar = 0;  // the required measured / limit (kLower: the most allowed); 0: the figure is reported, not
                   // judged
  Better better = Better::kHigher;
  std::string note{};  // the limit's name, the shape
};

// True also if no bar is set.
bool meets_bar(const BenchRow& row);

// Writes each row as soon as it is measured, in columns, so that an interrupted run leaves its results.
class BenchTable {
 public:
  enum class Bars : std::uint8_t { kJudged, kIgnored };
  explicit BenchTable(std::ostream& out, Bars bars = Bars::kJudged) : out_(out), bars_(bars) {}

  // Writes the line of headings.
  void begin();

  void add(BenchRow row);
  // Reports that something could not be measured; it counts as failed.
  void fail(std::string name, const Status& status);

  std::uint32_t passed() const { return passed_; }
  std::uint32_t failed() const { return failed_; }
  // Writes "N passed, N failed": it counts rows that have a bar, and measurements that failed.
  void end();

 private:
  // Name, measured, unit, limit, share of it, bar, "ok" | "MISSED" | "FAILED" | "", note.
  using Cells = std::array<std::string, 8>;
  void tell(const Cells& cells);

  std::ostream& out_;
  const Bars bars_;
  std::uint32_t passed_ = 0;
  std::uint32_t failed_ = 0;
};

// The rates that this device reaches, measured before any benchmark.
struct BenchLimits {
  double copy_gbps = 0;       // inside device memory, bytes read and bytes written together
  double matrix_tflops = 0;   // dense products of 16-bit random matrices
  double to_device_gbps = 0;  // from pinned host memory, alone
  double to_host_gbps = 0;    // to it, alone
};

struct BenchOptions {
  std::uint32_t ordinal = 0;
  bool quick = false;                // fewer repeats and shapes
  std::vector<std::string> filters;  // prefixes of names of rows; empty: all rows
};

class Bench {
 public:
  enum class Caches : std::uint8_t {
    kCold,  // the second-level cache is overwritten before each call
    kWarm,  // each call follows another one directly
  };

  // Errors: those of Device::open() and of measure_limits().
  static Result<std::unique_ptr<Bench>> make(BenchOptions options);

  const Device& device() const { return *device_; }
  const BenchLimits& limits() const { return limits_; }
  BenchTable& table() { return table_; }
  Stream& stream() { return stream_; }
  bool quick() const { return options_.quick; }
  bool small() const { return device_->properties().simulated; }
  // True if the filters select rows of this name, or of names that begin with it.
  bool wanted(std::string_view name) const;

  // Calls `measure`, which allocates memory and adds rows. If memory runs out or the device is lost, `name`
  // is reported as failed, and the other benchmarks go on.
  void attempt(const std::string& name, const std::function<void()>& measure);
  // Only inside attempt(), because it throws if there is no memory.
  Memory memory(MemoryKind kind, std::uint64_t bytes) const;
  // Values in device memory, normally distributed in [-1, 1] or so: products of zeros are faster than
  // others.
  Memory random_values(std::uint64_t count, ElementType type, std::uint64_t seed) const;

  // The median time of one call that queues work on stream(). It is measured by events while the host is
  // ahead of the device; the first calls do not count.
  double measure_ms(const std::function<void(Stream&)>& work, Caches caches = Caches::kCold,
                    std::uint32_t repeats = 0);
  // The same by the clock, from before the call until the device has done everything; for work on several
  // streams.
  double measure_wall_ms(const std::function<void()>& work, std::uint32_t repeats = 0);

 private:
  Bench(BenchOptions options, std::unique_ptr<Device> device);
  std::uint32_t repeats_of(std::uint32_t asked) const;

  const BenchOptions options_;
  std::unique_ptr<Device> device_;
  Stream stream_;
  Memory scratch_;  // more than the second-level cache holds
  BenchLimits limits_;
  BenchTable table_;
};

// Measures the limits and writes them to the table. Errors: kResourceExhausted.
Result<BenchLimits> measure_limits(Bench& bench);

// The benchmarks. Each lies in the folder of the code that it measures.
void bench_movement(Bench& bench);   // check/bench_movement.cc
void bench_attention(Bench& bench);  // attention/
void bench_products(Bench& bench);   // products/
void bench_rows(Bench& bench);       // rows/
void bench_models(Bench& bench);     // a Llama-8B-shaped model: decode, prefill
void bench_restore(Bench& bench);    // a Llama-2-7B-shaped one: state from host memory, in all ways

}  // namespace loci::cuda
