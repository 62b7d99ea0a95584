// SPDX-License-Identifier: Apache-2.0
// The benchmark program's frame: figures of the kernels, of movement and of whole models, each beside what
// the hardware gave in the same run. bench_main.cc runs the benchmarks that are named here and writes one
// table, a row as it is measured.
//
//   void bench_rows(Bench& bench) {
//     const double ms = bench.measure_ms([&](Stream& stream) { rms_norm(arguments, stream); });
//     bench.table().add({.name = "rows/norm 4096", .measured = bytes / ms / 1e6, .unit = "GB/s",
//                        .limit = bench.limits().copy_gbps, .bar = 0.8, .note = "512 rows"});
//   }
//
// A benchmark makes its memory through Bench::memory(), asks wanted() before what takes long, and takes small
// shapes where small() says so (the simulated device: there the frame is tested, no figure means anything,
// and no bar is judged). GB are 10^9 bytes. One thread.
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
  double bar = 0;  // measured / limit that is asked for (kLower: at most); 0: the figure is told, not judged
  Better better = Better::kHigher;
  std::string note{};  // the limit's name, the shape
};

// True where nothing is asked for.
bool meets_bar(const BenchRow& row);

// Writes a row as soon as it is measured, in columns, so that a run that is stopped leaves what it has.
class BenchTable {
 public:
  enum class Bars : std::uint8_t { kJudged, kIgnored };
  explicit BenchTable(std::ostream& out, Bars bars = Bars::kJudged) : out_(out), bars_(bars) {}

  // The line of headings.
  void begin();

  void add(BenchRow row);
  // Something could not be measured; counts as failed.
  void fail(std::string name, const Status& status);

  std::uint32_t passed() const { return passed_; }
  std::uint32_t failed() const { return failed_; }
  // "N passed, N failed": of the rows that have a bar, and of what could not be measured.
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

// What this device gave, measured before any benchmark.
struct BenchLimits {
  double copy_gbps = 0;       // inside device memory, bytes read and bytes written together
  double matrix_tflops = 0;   // dense products of 16-bit random matrices
  double to_device_gbps = 0;  // from pinned host memory, alone
  double to_host_gbps = 0;    // to it, alone
};

struct BenchOptions {
  std::uint32_t ordinal = 0;
  bool quick = false;                // fewer repeats and shapes
  std::vector<std::string> filters;  // begins of rows' names; empty: all
};

class Bench {
 public:
  enum class Caches : std::uint8_t {
    kCold,  // the second-level cache is overwritten before each call
    kWarm,  // each call follows another one
  };

  // Errors: Device::open()'s, and where limits cannot be measured.
  static Result<std::unique_ptr<Bench>> make(BenchOptions options);

  const Device& device() const { return *device_; }
  const BenchLimits& limits() const { return limits_; }
  BenchTable& table() { return table_; }
  Stream& stream() { return stream_; }
  bool quick() const { return options_.quick; }
  bool small() const { return device_->properties().simulated; }
  // Rows of this name, or some whose names begin so, are asked for.
  bool wanted(std::string_view name) const;

  // Calls `measure`, which makes memory and adds rows; where memory ends or the device is lost `name` is told
  // as failed instead, and the other rows go on.
  void attempt(const std::string& name, const std::function<void()>& measure);
  // Inside attempt() alone: it throws where there is none.
  Memory memory(MemoryKind kind, std::uint64_t bytes) const;
  // Values in device memory, normally distributed in [-1, 1] or so: products of zeros are faster than
  // others.
  Memory random_values(std::uint64_t count, ElementType type, std::uint64_t seed) const;

  // The median time of one call that queues work on stream(): by events, the host ahead of the device, after
  // calls that are not counted.
  double measure_ms(const std::function<void(Stream&)>& work, Caches caches = Caches::kCold,
                    std::uint32_t repeats = 0);
  // The same by the clock, from before the call to when the device has done all: for work on several streams.
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

// Measures and tells them. Errors: memory.
Result<BenchLimits> measure_limits(Bench& bench);

// The benchmarks, each beside what it measures.
void bench_movement(Bench& bench);   // check/bench_movement.cc
void bench_attention(Bench& bench);  // attention/
void bench_products(Bench& bench);   // products/
void bench_rows(Bench& bench);       // rows/
void bench_models(Bench& bench);     // a Llama-8B-shaped model: decode, prefill

}  // namespace loci::cuda
